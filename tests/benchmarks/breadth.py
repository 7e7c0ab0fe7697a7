"""How many of a folder's configurations of other trainers ``init --from`` makes a plan of.

``python -m tests.benchmarks.breadth FOLDER`` prints their number, and the files of each reason.
"""

import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from orchestrator.planning.config import load_config
from orchestrator.planning.dialects.registry import UnreadableFileError
from orchestrator.planning.dialects.trainers.tables import REASONS
from orchestrator.planning.dialects.translate import translated, write
from orchestrator.planning.plan import plan
from orchestrator.planning.prechecks.mistakes import check_files
from orchestrator.planning.problems import ConfigError

PARTS = ("accelerate", "DeepSpeed", "config.json")
"""Dialects of files that say only a part of a training."""


def outcome(path: Path, scratch: Path) -> str:
    """``planned``, or why a file is not."""
    try:
        result = translated([path])
    except UnreadableFileError:
        return "no training: in no known dialect"
    if result.dialects[0] in PARTS:
        return "no training: a part of one"
    if whys := [entry.why for entry in result.obstacles]:
        return next((why for why in whys if why == REASONS["SEVERAL_GPUS"]), whys[0])
    if result.missing:
        return "the shape of its model is not known here"
    try:
        write(result, "", scratch, force=True)
        config = load_config(scratch)
        check_files(config)
        planned = plan(config, has_gpu=True)
    except ConfigError as error:
        return str(error)
    if not planned.trials:
        return planned.ruled_out[0].reason
    is_near = any(one.ours == "model" and one.verdict == "nearest" for one in result.entries)
    return "planned with the nearest shape" if is_near else "planned"


def main(folder: Path) -> None:
    """Print the numbers for the YAML files and the shell scripts of a folder."""
    files = sorted(file for end in ("*.yaml", "*.yml", "*.sh") for file in folder.rglob(end))
    by_outcome: dict[str, list[str]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        for file in files:
            by_outcome[outcome(file, Path(scratch, "ours.yaml"))].append(file.name)
    apart = ("no training", "it is no training", REASONS["SEVERAL_GPUS"])
    for_one_gpu = sum(len(names) for why, names in by_outcome.items() if not why.startswith(apart))
    planned = sum(len(names) for why, names in by_outcome.items() if why.startswith("planned"))
    print(f"{planned} of {for_one_gpu} trainings on one GPU are planned, of {len(files)} files")
    for why, names in sorted(by_outcome.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):4} {why}: {', '.join(names[:3])}{' …' if len(names) > 3 else ''}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
