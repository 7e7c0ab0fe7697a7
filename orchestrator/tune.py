"""Find the fastest configuration in your memory, without axes, and write a training script."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from jobs.node import nvml
from orchestrator import argument_types, cli
from orchestrator.measuring import with_early_start
from orchestrator.planning.config import SweepConfig, load_config
from orchestrator.planning.loggers import LoggerError, refuse_missing
from orchestrator.planning.problems import ConfigError
from orchestrator.planning.tune_space.space import Goal, TuneSpace
from orchestrator.running.options import RunOptions
from orchestrator.storage.location import Location
from orchestrator.units import count, size_bytes

if TYPE_CHECKING:
    from orchestrator.analysis.dataset import Dataset
    from orchestrator.analysis.recommendation import Candidate
    from orchestrator.reporting.tune_result import TuneResult
    from orchestrator.running.reports import CheckModel
    from orchestrator.storage.run_folder import RunFolder

_GPU_MINUTES = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions(RunOptions):
    """The options of the command line."""

    config: Path
    goal: Goal
    gpu_seconds: float
    """GPU time of all trials together."""
    trust_remote_code: bool = False
    allow_own_code: bool = False
    output: Location | None = None
    """None: the output folder of the configuration, with "-tune" after its name."""
    dry_run: bool = False

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> Self:
        """The options of a parsed command line."""
        goal = Goal(
            budgets=tuple(sorted(set(arguments.memory or ()))),
            effective_batch=arguments.effective_batch,
            any_recipe=arguments.recipe == "any",
        )
        return cls(
            config=arguments.config,
            goal=goal,
            gpu_seconds=60 * arguments.gpu_minutes,
            trust_remote_code=arguments.trust_remote_code,
            allow_own_code=arguments.allow_own_code,
            output=arguments.output,
            dry_run=arguments.dry_run,
            address=arguments.address,
            time_budget_seconds=arguments.time_budget,
            resume=arguments.resume,
            fresh=arguments.fresh,
            as_json=arguments.json,
            force=arguments.force,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune, and print the result for each budget. Returns the exit status.

    0 each budget has a pick, 1 one has none, 2 a mistake in the configuration or the options,
    130 interrupted.
    """
    options = TuneOptions.from_arguments(command_line().parse_args(arguments))
    try:
        config = load_config(
            options.config,
            trust_remote_code=options.trust_remote_code,
            allow_own_code=options.allow_own_code,
        )
        if not options.dry_run:
            refuse_missing(config.loggers)
        cli.print_notes([*config.notes, *_notes(config)])
        cli.check_files(config, address=options.address, asks_hub=not options.dry_run)
        if options.dry_run:
            _print_space(config, options)
            return cli.EXIT_OK
        return _tune(config, options)
    except (ConfigError, LoggerError) as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE


def _tune(config: SweepConfig, options: TuneOptions) -> int:
    """Tune in the run's folder. Returns the exit status."""
    output = options.output or config.output.with_name(f"{config.output.name}-tune")

    return with_early_start(config, options, output, partial(_run, config, options))


def command_line() -> argparse.ArgumentParser:
    """The parser of the verb's command line."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.tune",
        description=__doc__,
        epilog=cli.epilog({cli.EXIT_FAILURE: "nothing measured fits some budget"}),
    )
    cli.add_options(parser, output="runs/NAME-tune")
    add = parser.add_argument
    memory = "GPU memory to stay within, one size or several (default: the GPU's own)"
    add("--memory", type=_sizes, metavar="24GiB,40GiB", help=memory)
    minutes = f"GPU time of all trials together (default: {_GPU_MINUTES:g})"
    add("--gpu-minutes", type=_minutes, default=_GPU_MINUTES, metavar="N", help=minutes)
    batch = "samples per optimizer step (default: yours if you accumulate, else any)"
    add("--effective-batch", type=argument_types.count, metavar="N", help=batch)
    recipe = "own: only what trains like your arguments; any: other optimizers and adapters, too"
    add("--recipe", choices=("own", "any"), default="own", help=recipe)
    return parser


def _sizes(text: str) -> list[int]:
    """Parse an argument such as 24GiB,40GiB."""
    try:
        return [size_bytes(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _minutes(text: str) -> float:
    """Parse a number of minutes above zero."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of minutes above 0, not {text}")
    return minutes


def _notes(config: SweepConfig) -> list[str]:
    """Notes about parts of the configuration that ``tune`` ignores."""
    if config.axes or config.subsets or config.trials:
        return ["tune chooses what to try by itself; the axes of this file play no part"]
    return []


def _print_space(config: SweepConfig, options: TuneOptions) -> None:
    from orchestrator.running.ray_address import is_elsewhere
    from orchestrator.running.tune_run import not_tried_lines

    has_gpu = is_elsewhere(options.address) or bool(nvml.visible_uuids())
    space = _space(config, options, has_gpu=has_gpu)
    considered = len(space.plan.trials)
    if options.as_json:
        document = {"name": config.name, "considered": considered, **_space_json(space)}
        print(json.dumps(document, indent=2))
        return
    print(f"{config.name}: {count(considered, 'configuration')} considered")
    for axis, values in space.config.axes.items():
        print(f"  {axis}: {', '.join(map(str, values))}")
    print("not tried")
    for line in not_tried_lines(space.not_tried):
        print(line)


def _space_json(space: TuneSpace) -> dict[str, Any]:
    """What is varied, and what is not, as plain JSON values."""
    return {
        "axes": {axis: list(values) for axis, values in space.config.axes.items()},
        "not_tried": space.not_tried,
        "effective_batch": space.effective_batch,
        "budgets": list(space.config.budgets),
    }


def _space(config: SweepConfig, options: TuneOptions, *, has_gpu: bool) -> TuneSpace:
    from orchestrator.running.ray_address import is_elsewhere
    from orchestrator.running.tune_run import space_of

    is_remote = is_elsewhere(options.address)
    return space_of(config, options.goal, options.gpu_seconds, has_gpu=has_gpu, is_remote=is_remote)


def _run(
    config: SweepConfig,
    options: TuneOptions,
    folder: RunFolder,
    check_model: CheckModel,
) -> int:
    """Search, publish the run, and print the results. Returns the exit status."""
    from orchestrator.reporting.publish import publish
    from orchestrator.running.tune_run import run_tune

    end = run_tune(
        config, options.goal, options.gpu_seconds, options, folder, check_model=check_model
    )
    results = _print_results(publish(folder.path).dataset, options)
    if end.is_interrupted:
        return cli.EXIT_INTERRUPTED
    if end.failure:
        print(end.failure, file=sys.stderr)
        return cli.EXIT_FAILURE
    if not results or any(result.best is None for result in results):
        return cli.EXIT_FAILURE
    return cli.EXIT_OK


def _print_results(dataset: Dataset, options: TuneOptions) -> Sequence[TuneResult]:
    """Print the result for each budget, and write the files of its pick."""
    from orchestrator.reporting.tune_result import candidate_of, describe, read, to_json

    found = read(dataset)
    exported = {}
    for result in found.results:
        candidate = candidate_of(dataset, result)
        if candidate is not None and dataset.folder is not None:
            target = dataset.folder / result.folder_name
            exported[result.folder_name] = _export(dataset, candidate, target)
    if options.as_json:
        print(json.dumps(to_json(found, exported), indent=2))
    else:
        print(describe(found, exported))
    return found.results


def _export(dataset: Dataset, candidate: Candidate, target: Path) -> str:
    """Write the files to train a pick. Returns their folder, or the reason why there are none."""
    from orchestrator.export import NotExportableError, export_candidate

    try:
        export_candidate(dataset, candidate, target, force=True)
    except (NotExportableError, FileExistsError, NotADirectoryError) as error:
        return f"not written: {error}"
    return str(target)


if __name__ == "__main__":
    cli.finish(main)
