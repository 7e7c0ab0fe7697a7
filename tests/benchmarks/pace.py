"""How many trials of a grid a GPU gets through in a minute: some of a configuration's, drawn with a seed, on one GPU.

    python -m tests.benchmarks.pace [CONFIG] [--count 60] [--seed 0] [--output DIR] [--recorded RUN]

They run as ``search: grid`` does, each to the precision that the configuration asks for. The minutes are those from the
first trial's start to the last one's end. ``--recorded`` prints the figures of an earlier run.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from jobs.node import nvml
from orchestrator.planning.config import load_config
from orchestrator.storage.tables import parquet
from tests.benchmarks import docs_method, efficiency

CONFIG = efficiency.ROOT / "configs" / "bert_large.yaml"


def write_config(path: Path, config: Path, count: int, seed: int) -> None:
    """So many of its trials, drawn with this seed."""
    document = yaml.safe_load(config.read_text())
    chosen, _ = docs_method.drawn(
        load_config(config), count, seed, has_gpu=bool(nvml.visible_uuids())
    )
    kept = {name: document[name] for name in ("model", "data") if name in document}
    measure = {**document.get("measure", {}), "anatomy": "none"}
    trials = [dict(spec.choices) for spec in chosen]
    path.write_text(
        yaml.safe_dump({**kept, "measure": measure, "trials": trials, "search": "grid"})
    )


def report(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Lines."""
    ran = [row for row in rows if row["started_at"] and not row.get("follows")]
    outcomes = ", ".join(
        f"{many} {outcome}"
        for outcome, many in Counter(row["outcome"] for row in ran).most_common()
    )
    begin = min(row["started_at"].timestamp() for row in ran)
    span = max(row["started_at"].timestamp() + row["slot_seconds"] for row in ran) - begin
    overhead = statistics.median(row["overhead_seconds"] for row in ran if row["overhead_seconds"])
    slot = sum(row["slot_seconds"] for row in ran)
    yield f"{len(ran)} trials ({outcomes}) in {span:.1f} s, of which {slot:.1f} s of slot time:"
    yield f"{60 * len(ran) / span:.1f} a GPU-minute; the median trial took {overhead:.2f} s beside counted steps"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.pace")
    parser.add_argument("config", type=Path, nargs="?", default=CONFIG)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("runs/pace"))
    parser.add_argument("--recorded", type=Path, help="a run folder to print again")
    options = parser.parse_args()
    if options.recorded:
        print("\n".join(report(parquet.load(options.recorded).to_pylist())))
        return
    output = options.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    config = output / "drawn.yaml"
    write_config(config, options.config, options.count, options.seed)
    efficiency.run(
        config, [nvml.visible_device(uuid) for uuid in nvml.visible_uuids()[:1]], output / "run"
    )
    print("\n".join(report(parquet.load(output / "run").to_pylist())))


if __name__ == "__main__":
    main()
