"""One package per cloud; each is found by its entry point (`karpenter.cloudproviders`)."""
