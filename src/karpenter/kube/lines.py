"""Cutting a stream of bytes into lines, without I/O."""


class LineDecoder:
    """Takes chunks as they come and gives back whole, non-empty lines without their newline."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes; what is left waits for the next chunk."""
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            self._rest.append(chunk)
            return []
        self._rest.append(head)
        lines = b"".join(self._rest).split(b"\n")
        self._rest = [tail] if tail else []
        return [line for line in lines if line]
