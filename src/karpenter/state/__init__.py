"""The cluster in memory: informer events in, immutable snapshots out."""
