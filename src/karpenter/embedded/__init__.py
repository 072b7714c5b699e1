"""A Kubernetes small enough to live in this process: API server, controllers and simulated kubelets."""
