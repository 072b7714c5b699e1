"""The controllers a Kubernetes cluster brings along: workloads, garbage collection, volumes, kubelets."""
