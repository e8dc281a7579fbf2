"""A clock that goes when it is told to."""


class StillClock:
    """A monotonic clock that stands still until told."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds
