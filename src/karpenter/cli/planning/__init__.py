"""`karpenter plan`, room by room: read manifests, expand workloads, make a Problem, report the Plan."""
