"""Find the batch to train with, for every GPU model in reach: the largest micro-batch that fits, the fastest, where
more memory stops to buy speed, and the accumulation for an effective batch."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator import cli
from orchestrator.analysis.batch_size import FILE, describe
from orchestrator.planning.config import SweepConfig, load_config
from orchestrator.planning.loggers import TrackerError, refuse_missing
from orchestrator.planning.problems import ConfigError
from orchestrator.planning.technique_sets import TechniqueSet, read_choice, technique_sets
from orchestrator.running import ray_address
from orchestrator.storage.run_folder import RunFolder
from orchestrator.storage.run_metadata import TRIALS

if TYPE_CHECKING:
    from orchestrator.running.batch_size_tuning import Tuned
    from orchestrator.running.nodes import Cluster

_MOST, _MOST_ON_CPU = 512, 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 some batch could not be tuned, 2 a mistake in config or options, 130 interrupted."""
    options = command_line().parse_args(arguments)
    try:
        config = load_config(options.config, trust_remote_code=options.trust_remote_code)
        over = dict(read_choice(text, config) for text in options.set)
        refuse_missing(() if options.dry_run else config.trackers)
    except (ConfigError, TrackerError, ValueError) as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE
    sets = technique_sets(config, over, every=options.all)
    if options.effective_batch is None and isinstance(
        asked := config.baseline.get("effective_batch"), int
    ):
        options.effective_batch = asked
    if options.dry_run:
        print(
            json.dumps(_planned(config, sets, options), indent=2)
            if options.json
            else _plan(config, sets, options)
        )
        return cli.EXIT_OK
    place = options.output or config.output.with_name(f"{config.output.name}-batch-size")
    with ray_address.preloading(options.address, config.resources.cpus_per_trial):
        return cli.holding(
            place, lambda folder: _run(config, sets, folder, options), resume=options.resume
        )


def command_line() -> argparse.ArgumentParser:
    """What the verb takes."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.batch_size",
        description=__doc__,
        epilog=cli.epilog({cli.EXIT_FAILURE: "some batch could not be tuned"}),
    )
    cli.add_options(parser, output="runs/NAME-batch-size")
    add = parser.add_argument
    add(
        "--effective-batch",
        type=cli.count,
        metavar="N",
        help="samples a step, to be reached by accumulation",
    )
    add(
        "--memory-margin",
        type=cli.margin,
        default=0.05,
        metavar="5%",
        help="GPU memory to keep free, or 4GiB",
    )
    most = f"try none larger (default: {_MOST}, and {_MOST_ON_CPU} without a GPU)"
    add("--max-micro-batch", type=cli.count, metavar="N", help=most)
    add(
        "--tolerance",
        type=cli.share,
        default=0.02,
        metavar="2%",
        help="speeds closer than this are the same",
    )
    add(
        "--exact",
        action="store_true",
        help="find the largest to the sample, also where it is 64 or more",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="AXIS=VALUE",
        help="choose a technique, as in precision=bf16",
    )
    add(
        "--all",
        action="store_true",
        help="tune every technique set of the sweep, not only its baseline",
    )
    return parser


def _planned(
    config: SweepConfig, sets: Sequence[TechniqueSet], options: argparse.Namespace
) -> dict[str, Any]:
    return {
        "name": config.name,
        "technique_sets": [{"label": one.label, "choices": dict(one.choices)} for one in sets],
        "max_micro_batch": options.max_micro_batch,
        "effective_batch": options.effective_batch,
    }


def _plan(config: SweepConfig, sets: Sequence[TechniqueSet], options: argparse.Namespace) -> str:
    lines = [
        f"{config.name}: the batch of {len(sets)} technique set{'s' * (len(sets) != 1)} on each GPU model in reach"
    ]
    lines += [f"  {one.label}" for one in sets]
    most = options.max_micro_batch or f"{_MOST}, or {_MOST_ON_CPU} without a GPU"
    lines.append(f"micro-batches up to {most}; each trial follows from those before it")
    if options.effective_batch:
        lines.append(f"then the fastest way to effective batch {options.effective_batch}")
    return "\n".join(lines)


def _run(
    config: SweepConfig,
    sets: Sequence[TechniqueSet],
    folder: RunFolder,
    options: argparse.Namespace,
) -> int:
    from orchestrator.running import gpu_screening
    from orchestrator.running.lifecycle import run_json
    from orchestrator.storage.tables import parquet

    run = run_json(config, "batch_size")
    folder.describe(run)
    begin = time.monotonic()
    tuned: list[Tuned] = []
    with gpu_screening.reached(options.address, config.resources) as fit:
        folder.describe(run := {**run, **fit.to_json()})
        alike = fit.cluster.by_hardware()
        for part in alike:
            own = (
                folder
                if len(alike) == 1
                else RunFolder(folder.path / part.hardware.replace(" ", "-"))
            )
            with contextlib.nullcontext() if own is folder else own.locked():
                tuned.append(_tune(config, sets, part, own, options, time.monotonic() - begin))
            if own.records():
                parquet.load(own.path, save_tables=True)
            if tuned[-1].interrupted:
                break
    document = {
        "name": config.name,
        "command": run["command"],
        "hardware": [one.to_json() for one in tuned],
    }
    folder.keep(FILE, document)
    print(json.dumps(document, indent=2) if options.json else _answers(tuned, folder))
    if any(one.interrupted for one in tuned):
        return cli.EXIT_INTERRUPTED
    failed = any(
        answer.largest is None and answer.unfinished for one in tuned for answer in one.answers
    )
    return cli.EXIT_FAILURE if failed else cli.EXIT_OK


def _tune(
    config: SweepConfig,
    sets: Sequence[TechniqueSet],
    cluster: Cluster,
    folder: RunFolder,
    options: argparse.Namespace,
    spent_seconds: float,
) -> Tuned:
    from orchestrator.running import lifecycle
    from orchestrator.running.batch_size_tuning import Tuning
    from orchestrator.running.progress import Progress

    budget = options.time_budget or (None if cluster.gpus else config.cpu.time_budget_seconds)
    axes = tuple(
        axis for axis in sets[0].choices if len({str(one.choices[axis]) for one in sets}) > 1
    )
    stream = sys.stderr if options.json else sys.stdout
    progress = Progress(None, cluster.slots, ("micro_batch", "accumulation", *axes), stream=stream)
    progress.say(f"{_plan(config, sets, options)}\nnow on {lifecycle.slots_in_words(cluster)}")
    tuning = Tuning(
        config,
        sets,
        {
            "effective_batch": options.effective_batch,
            "margin": options.memory_margin,
            "tolerance": options.tolerance,
            "max_micro_batch": options.max_micro_batch or (_MOST if cluster.gpus else _MOST_ON_CPU),
            "exact": options.exact,
        },
    )
    left = None if budget is None else max(0.0, budget - spent_seconds)
    return tuning.run(
        cluster,
        folder,
        progress,
        time_budget_seconds=left,
        resume=options.resume,
        fresh=options.fresh,
    )


def _answers(tuned: Sequence[Tuned], folder: RunFolder) -> str:
    told = [f"\n{describe(answer, one.hardware)}" for one in tuned for answer in one.answers]
    files = [folder.path / FILE, *(one.folder.path / TRIALS for one in tuned)]
    return "\n".join([*told, "\nFiles", *(f"  {path}" for path in files if path.exists())])


if __name__ == "__main__":
    cli.finish(main)
