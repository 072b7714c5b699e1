"""Which nodes may be taken away, and how many at once; pure.

What is decided here now: empty nodes, within budgets. Replacing drifted and under-used nodes is later work;
pools whose policy allows it get the consolidation of empty nodes until then.
"""
