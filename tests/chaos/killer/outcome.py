"""What became of sweeps under a random killer, and the table of it."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos import page

CHECKS: Mapping[str, str] = {
    "lost": "finished trials lost or changed",
    "repeated": "finished trials started again",
    "without_row": "planned trials without exactly one row",
    "left_over": "processes left 20 s after their driver's end",
    "temporary": "temporary files left after the sweep",
    "hangs": "waits longer than the stated bound",
    "tracebacks": "drivers that ended in a traceback",
    "unexpected": "strikes with another effect than promised",
    "unreadable": "reads of tables and reports that failed",
}
"""What must not be."""


@dataclass(kw_only=True)
class Struck:
    """One strike, and what followed."""

    name: str
    seconds: float = 0.0
    """Until the next record, or the driver's end."""
    status: int | None = None
    """The driver's exit status, if it ended before another record."""

    def end(self) -> str:
        if self.status is None:
            return "went on"
        if self.status == 0:
            return "completed the sweep"
        was = "was killed" if self.status < 0 else f"ended with status {self.status}"
        return f"{was}, then resumed"


@dataclass(kw_only=True)
class SweepOutcome:
    """What became of one sweep, and by the names of ``CHECKS`` everything that did not hold."""

    trials: int
    drivers: int = 0
    reads: int = 0
    strikes: list[Struck] = field(default_factory=list)
    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def line(self) -> str:
        struck = ", ".join(f"{strike.name} ({strike.seconds:.0f} s)" for strike in self.strikes)
        return f"{self.trials} trials, {self.drivers} drivers, {self.reads} reads; {struck}"


def table(outcomes: Sequence[SweepOutcome], kinds: Sequence[str]) -> Iterator[str]:
    strikes = [strike for outcome in outcomes for strike in outcome.strikes]
    trials = sum(outcome.trials for outcome in outcomes)
    drivers = sum(outcome.drivers for outcome in outcomes)
    reads = sum(outcome.reads for outcome in outcomes)
    counts = f"{len(strikes)} strikes, {drivers} drivers, {reads} reads"
    yield f"{len(outcomes)} sweeps of {trials} trials, {counts}."
    yield from page.checks(CHECKS, [outcome.wrong for outcome in outcomes])
    yield "| strike | times | the driver | longest wait for a record or the driver's end |"
    yield "| --- | ---: | --- | ---: |"
    for name in kinds:
        own = [strike for strike in strikes if strike.name == name]
        ends = Counter(strike.end() for strike in own).most_common()
        words = ", ".join(f"{what} ({times})" for what, times in ends) or "not run"
        longest = f"{max(strike.seconds for strike in own):.0f} s" if own else ""
        yield f"| {name} | {len(own)} | {words} | {longest} |"
