"""What looking at a trial's operators costs it: the same trial inspected and not, in turns.

    python -m tests.benchmarks.inspected [--count 6] [--output FILE.json] [--recorded FILE.json]

BERT-large, bf16, micro-batch 8, checkpointing: a speed that is the host's. The guide's figures are less the inspection;
what else it changed, of the counted steps or of the memory, would be an error. ``--recorded`` prints again what was
written; ``--tiny`` shrinks the model for a machine without a GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jobs.isolation.slot import Slot
from jobs.spec import TrialSpec
from tests.benchmarks.overhead import chosen, run

CHOSEN = {
    "precision": "bf16",
    "micro_batch": 8,
    "activations": "checkpoint",
    "optimizer": "adamw_torch_fused",
}
FIGURES = (
    "setup_seconds",
    "first_step_seconds",
    "step_seconds",
    "slot_seconds",
    "device_peak_bytes",
)
WAYS = ("inspected", "not inspected")

Figures = Mapping[str, float]


def measure(spec: TrialSpec, count: int, cpus: int, seed: int = 0) -> dict[str, list[Figures]]:
    """Way -> what each of so many trials took, in seconds, and held. Raises RuntimeError where one fails."""
    generator, found = random.Random(seed), {way: list[Figures]() for way in WAYS}
    with Slot(cpus) as slot:
        for repeat in range(count):
            for way in generator.sample(WAYS, len(WAYS)):
                looked_at = replace(spec.measure, inspect=way == "inspected")
                record = run(slot, replace(spec, repeat=repeat, measure=looked_at))
                known = record.measurements
                mean = known["counted_seconds"] / known["steps_counted"]
                figures = {**known, "step_seconds": mean, "slot_seconds": record.slot_seconds}
                found[way].append({name: figures[name] for name in FIGURES if name in figures})
    return found


def report(found: Mapping[str, Sequence[Figures]]) -> Iterator[str]:
    """Markdown."""
    yield "| | " + " | ".join(f"{way}: mean | least | most" for way in found) + " |"
    yield "| --- |" + " ---: | ---: | ---: |" * len(found)
    for name in found[WAYS[0]][0]:
        columns = [[figures[name] for figures in trials] for trials in found.values()]
        places = 0 if name.endswith("bytes") else 3
        cells = [
            f"{one:,.{places}f}"
            for of in columns
            for one in (statistics.fmean(of), min(of), max(of))
        ]
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.inspected")
    parser.add_argument("--count", type=int, default=6, help="trials each way")
    parser.add_argument("--cpus", type=int, default=8, help="cores of a trial")
    parser.add_argument("--output", type=Path, help="where to write the figures as JSON")
    parser.add_argument("--recorded", type=Path, help="what --output wrote, to print it again")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    if options.recorded:
        print("\n".join(report(json.loads(options.recorded.read_text()))))
        return
    found = measure(chosen(CHOSEN, tiny=options.tiny), options.count, options.cpus)
    if options.output:
        options.output.write_text(json.dumps(found))
    print("\n".join(report(found)))


if __name__ == "__main__":
    main()
