"""`python -m karpenter`."""

from karpenter.cli.main import main

main()
