"""How many of a folder's configurations of other trainers ``init --from`` makes a plan of.

``python -m tests.benchmarks.breadth FOLDER`` prints their number, and the files of each reason.
``--predict FILE.parquet`` also predicts each planned training for an H100, writes what each has
for an answer, and prints it as ``python -m tests.benchmarks.tables answered FILE.parquet`` does.
"""

import argparse
import multiprocessing
import os
import resource
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as pq

from jobs.spec import TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.dialects.registry import UnreadableFileError
from orchestrator.planning.dialects.trainers.tables import REASONS
from orchestrator.planning.dialects.translate import translated, write
from orchestrator.planning.plan import plan
from orchestrator.planning.prechecks.mistakes import check_files
from orchestrator.planning.problems import ConfigError
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.libraries import without_gpus
from tests.benchmarks.recorded import answered

PARTS = ("accelerate", "DeepSpeed", "config.json")
"""Dialects of files that say only a part of a training."""
_MOST_SECONDS = 120
"""CPU time of a prediction, beyond which it counts as none."""


def outcome(path: Path, scratch: Path, trials: dict[str, TrialSpec]) -> str:
    """``planned``, or why a file is not. Adds the first trial of a planned one to ``trials``."""
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
    trials[str(path)] = planned.trials[0]
    is_near = any(one.ours == "model" and one.verdict == "nearest" for one in result.entries)
    return "planned with the nearest shape" if is_near else "planned"


def answers(trials: Mapping[str, TrialSpec]) -> list[dict[str, Any]]:
    """A row for each file, one at a time on each core."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(_answer, trials.items()))


def _answer(named: tuple[str, TrialSpec]) -> dict[str, Any]:
    """What a process of its own predicts, which the system ends if it takes too long."""
    file, spec = named
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        try:
            return {"file": file, **process.submit(_predicted, spec).result()}
        except BrokenProcessPool:
            return {"file": file, "answer": "nothing", "reason": "it took too long, or crashed"}


def _predicted(spec: TrialSpec) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
    with without_gpus():
        [own] = predict([spec], load_gpu("h100"))
    kinds = {"refused": own.refused, "figure": own.device, "bound": own.bounds, "nothing": True}
    return {
        "answer": next(kind for kind, has_it in kinds.items() if has_it),
        "reason": own.refused or own.unknown,
        "least_bytes": own.bounds.least if own.bounds else None,
        "device_bytes": own.device.bytes if own.device else None,
    }


def main(folder: Path, answers_file: Path | None) -> None:
    """Print the numbers for the YAML files and the shell scripts of a folder."""
    files = sorted(file for end in ("*.yaml", "*.yml", "*.sh") for file in folder.rglob(end))
    by_outcome: dict[str, list[str]] = defaultdict(list)
    trials: dict[str, TrialSpec] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for file in files:
            by_outcome[outcome(file, Path(scratch, "ours.yaml"), trials)].append(file.name)
    apart = ("no training", "it is no training", REASONS["SEVERAL_GPUS"])
    for_one_gpu = sum(len(names) for why, names in by_outcome.items() if not why.startswith(apart))
    planned = sum(len(names) for why, names in by_outcome.items() if why.startswith("planned"))
    print(f"{planned} of {for_one_gpu} trainings on one GPU are planned, of {len(files)} files")
    for why, names in sorted(by_outcome.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):4} {why}: {', '.join(names[:3])}{' …' if len(names) > 3 else ''}")

    if answers_file is not None:
        by_name = {str(Path(file).relative_to(folder)): own for file, own in trials.items()}
        pq.write_table(pyarrow.Table.from_pylist(answers(by_name)), answers_file)
        for line in answered.lines(argparse.Namespace(answers=answers_file)):
            print(line)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.breadth")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--predict", type=Path, metavar="FILE.parquet")
    options = parser.parse_args()
    main(options.folder, options.predict)
