"""A clock for tests."""


class Clock:
    """In place of ``time.perf_counter``: its time passes only when a test changes ``now``."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
