"""How often compare raises an alarm where there is nothing: every pair of a run's repeats, as if each were a run.

    python -m orchestrator.sweep tests/data/repeats.yaml
    python -m tests.benchmarks.false_alarms runs/repeats [--slower 3%]

Every repeat is a trial of its own, in a process of its own. ``--slower`` plants a slowdown in the second of each pair
and counts how many pairs show it.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.analysis.comparison import Comparison, compare
from orchestrator.api import MeasuredRun, load
from orchestrator.cli import share
from orchestrator.storage import run_metadata as names
from orchestrator.storage.tables import parquet


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two repeats compared."""

    before: int
    after: int
    found: Comparison

    @property
    def alarms(self) -> list[str]:
        """What compare says has changed, a sentence each."""
        said = [
            f"{c.kind}: {c.label}" + (f" {c.ratio:.4f}" if c.ratio else "")
            for c in self.found.changes
        ]
        shift = self.found.shift
        return (
            [*said, f"everything: {shift.ratio:.4f}"]
            if shift is not None and shift.is_real
            else said
        )


def compared(run: Path, folder: Path, slower: float = 0.0) -> Iterator[Pair]:
    """Every pair of a run's repeats; their tables are written to ``folder``."""
    trials, steps = parquet.load(run, save_tables=True), pq.read_table(run / names.STEPS)
    repeats: Sequence[int] = sorted(pc.unique(trials["repeat"]).to_pylist())
    plain = {repeat: _alone(trials, steps, repeat, folder / f"{repeat}") for repeat in repeats}
    slow = {
        repeat: _alone(trials, steps, repeat, folder / f"{repeat}-slow", slower)
        for repeat in repeats
    }
    for before, after in itertools.combinations(repeats, 2):
        yield Pair(before=before, after=after, found=compare(plain[before], slow[after]))


def _alone(
    trials: pa.Table, steps: pa.Table, repeat: int, folder: Path, slower: float = 0.0
) -> MeasuredRun:
    own = trials.filter(pc.equal(trials["repeat"], repeat))
    place = own.schema.get_field_index("samples_per_second")
    own = own.set_column(
        place, own.schema.field(place), pc.multiply(own["samples_per_second"], 1 - slower)
    )
    folder.mkdir(parents=True)
    parquet.write(own, folder / names.TRIALS)
    parquet.write(steps.filter(pc.is_in(steps["trial_id"], own["trial_id"])), folder / names.STEPS)
    return load(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each pair that raises an alarm, and how many do."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.false_alarms", description=__doc__
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument(
        "--slower",
        type=share,
        default=0.0,
        metavar="3%",
        help="plant this in the second of each pair",
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        pairs = list(compared(options.run, Path(folder), options.slower))
    for pair in pairs:
        for alarm in pair.alarms:
            print(f"{pair.before} -> {pair.after}: {alarm}")
    alarmed = sum(bool(pair.alarms) for pair in pairs)
    kinds = Counter(change.kind for pair in pairs for change in pair.found.changes)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "no change"
    matched = min((pair.found.matched for pair in pairs), default=0)
    print(f"{alarmed} of {len(pairs)} pairs of {matched} configurations raise an alarm ({listed})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
