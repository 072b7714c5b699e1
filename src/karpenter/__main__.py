"""`python -m karpenter`, and the entry point of `karpenter` and `kubectl karpenter`."""

import signal


def main() -> None:
    """Run the command line; Ctrl-C while its modules are still being loaded ends it without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from karpenter.cli.main import app

    signal.signal(signal.SIGINT, signal.default_int_handler)
    app()


if __name__ == "__main__":
    main()
