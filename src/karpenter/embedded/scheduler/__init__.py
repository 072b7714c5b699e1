"""kube-scheduler in small: filters, scores and preemption as pure code, and the loop that binds pods.

It shares nothing with Karpenter's own planner on purpose: it is the judge that plans have to satisfy.
"""
