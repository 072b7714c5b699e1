"""Why things are as they are: answers about pods, nodes, NodePools and NodeClaims; pure, data to data."""
