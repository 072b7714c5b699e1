"""The shell: level-triggered controllers that carry decisions out, grouped as users think.

Each room has `build(context)`, which returns its controllers; `karpenter.operator.assembly` runs them.
"""
