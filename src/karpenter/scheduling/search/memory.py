"""What one search leaves for the next."""


class Memory:
    """Columns and duals kept between rounds by content. Opaque to callers; one per decision loop."""

    def __init__(self) -> None:
        """Start with nothing."""
