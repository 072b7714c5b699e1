"""`karpenter up`: an embedded cluster and the operator in one process, with a live view and scripts."""
