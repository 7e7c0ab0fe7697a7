"""A clock for tests."""


class Clock:
    """In place of ``time.perf_counter``: its time passes only when a test changes ``now``."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
