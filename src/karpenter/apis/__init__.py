"""What API objects are: frozen msgspec structs of the fields we read, and what the API promises of them.

Unknown fields are dropped on decoding, so that such a struct must never be written back whole: write with
patches of the fields we own (`karpenter.kube.patch`).
"""
