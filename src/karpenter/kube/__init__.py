"""The Kubernetes client: one `Transport` seam, typed reads, patches, reflectors and informers."""
