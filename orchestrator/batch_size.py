"""Find the batch to train with, for every available GPU model: the largest micro-batch that fits,
the fastest, the smallest that is as fast, and the accumulation for an effective batch."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from orchestrator import argument_types, cli
from orchestrator.measuring import with_early_start
from orchestrator.planning.config import SweepConfig, load_config
from orchestrator.planning.loggers import LoggerError, refuse_missing
from orchestrator.planning.problems import ConfigError
from orchestrator.planning.technique_sets import TechniqueSet, read_choice, technique_sets
from orchestrator.running.options import RunOptions
from orchestrator.storage.location import Location
from orchestrator.storage.run_folder import RunFolder
from orchestrator.units import count

if TYPE_CHECKING:
    from orchestrator.planning.prechecks.checks import ModelFacts
    from orchestrator.running.batch_size_run import HardwareAnswers
    from orchestrator.running.reports import CheckModel


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSizeOptions(RunOptions):
    """What the command line asks for."""

    config: Path
    trust_remote_code: bool = False
    allow_own_code: bool = False
    output: Location | None = None
    """None: a folder beside the configuration's output folder."""
    dry_run: bool = False
    choices: tuple[str, ...] = ()
    """Techniques to set, as ``AXIS=VALUE``."""
    every_set: bool = False
    """Whether to tune every technique set of the sweep, not only the baseline."""
    effective_batch: int | None = None
    """None: the configuration's, if it names one."""
    memory_margin: float
    tolerance: float
    max_micro_batch: int | None = None
    exact: bool = False

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> Self:
        """The options of a parsed command line."""
        return cls(
            config=arguments.config,
            trust_remote_code=arguments.trust_remote_code,
            allow_own_code=arguments.allow_own_code,
            output=arguments.output,
            dry_run=arguments.dry_run,
            choices=tuple(arguments.set),
            every_set=arguments.all,
            effective_batch=arguments.effective_batch,
            memory_margin=arguments.memory_margin,
            tolerance=arguments.tolerance,
            max_micro_batch=arguments.max_micro_batch,
            exact=arguments.exact,
            address=arguments.address,
            time_budget_seconds=arguments.time_budget,
            resume=arguments.resume,
            fresh=arguments.fresh,
            as_json=arguments.json,
            force=arguments.force,
        )

    def effective_batch_for(self, config: SweepConfig) -> int | None:
        """The effective batch to reach: the command line's, else the configuration's."""
        configured = config.baseline.get("effective_batch")
        if self.effective_batch is None and isinstance(configured, int):
            return configured
        return self.effective_batch


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune the batch sizes. Returns the exit status.

    0 done, 1 some batch could not be tuned, 2 a mistake in the configuration or the options,
    130 interrupted.
    """
    options = BatchSizeOptions.from_arguments(command_line().parse_args(arguments))
    try:
        config, sets = _read(options)
        cli.print_notes(config.notes)
        cli.check_files(config, address=options.address, asks_hub=not options.dry_run)
        if options.dry_run:
            _print_plan(config, sets, options, cli.model_facts(config))
            return cli.EXIT_OK
    except (ConfigError, LoggerError, ValueError) as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE
    try:
        return _tune(config, sets, options)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return cli.EXIT_USAGE


def _tune(config: SweepConfig, sets: Sequence[TechniqueSet], options: BatchSizeOptions) -> int:
    """Tune in the run's folder. Returns the exit status."""
    output = options.output or config.output.with_name(f"{config.output.name}-batch-size")

    return with_early_start(config, options, output, partial(_run, config, sets, options))


def _read(options: BatchSizeOptions) -> tuple[SweepConfig, tuple[TechniqueSet, ...]]:
    """The configuration and its technique sets. Raises ConfigError, LoggerError or ValueError."""
    config = load_config(
        options.config,
        trust_remote_code=options.trust_remote_code,
        allow_own_code=options.allow_own_code,
    )
    chosen = dict(read_choice(text, config) for text in options.choices)
    if not options.dry_run:
        refuse_missing(config.loggers)
    return config, technique_sets(config, chosen, every=options.every_set)


def command_line() -> argparse.ArgumentParser:
    """The parser of the verb's command line."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.batch_size",
        description=__doc__,
        epilog=cli.epilog({cli.EXIT_FAILURE: "some batch could not be tuned"}),
    )
    cli.add_options(parser, output="runs/NAME-batch-size")
    add = parser.add_argument
    effective = "samples per optimizer step, to be reached by accumulation"
    add("--effective-batch", type=argument_types.count, metavar="N", help=effective)
    margin = "GPU memory to keep free, or 4GiB"
    add("--memory-margin", type=argument_types.margin, default=0.05, metavar="5%", help=margin)
    largest = "try none larger (default: 512, and 64 without a GPU)"
    add("--max-micro-batch", type=argument_types.count, metavar="N", help=largest)
    tolerance = "speeds closer than this are equal"
    add("--tolerance", type=argument_types.share, default=0.02, metavar="2%", help=tolerance)
    exact = "find the largest to the sample, even if it is 64 or more"
    add("--exact", action="store_true", help=exact)
    choose = "choose a technique, as in precision=bf16"
    add("--set", action="append", default=[], metavar="AXIS=VALUE", help=choose)
    every = "tune every technique set of the sweep, not only its baseline"
    add("--all", action="store_true", help=every)
    return parser


def _print_plan(
    config: SweepConfig, sets: Sequence[TechniqueSet], options: BatchSizeOptions, facts: ModelFacts
) -> None:
    if options.as_json:
        document = {**_plan_json(config, sets, options), "model": facts.to_json()}
        print(json.dumps(document, indent=2))
        return
    print(_plan_text(config, sets, options))
    for name, text in facts.lines():
        print(f"{name}: {text}")


def _plan_json(
    config: SweepConfig, sets: Sequence[TechniqueSet], options: BatchSizeOptions
) -> dict[str, Any]:
    listed = []
    for technique_set in sets:
        listed.append({"label": technique_set.label, "choices": dict(technique_set.choices)})
    return {
        "name": config.name,
        "technique_sets": listed,
        "max_micro_batch": options.max_micro_batch,
        "effective_batch": options.effective_batch_for(config),
    }


def _plan_text(config: SweepConfig, sets: Sequence[TechniqueSet], options: BatchSizeOptions) -> str:
    number = count(len(sets), "technique set")
    largest = options.max_micro_batch or "512, or 64 without a GPU"
    lines = [f"{config.name}: the batch size of {number} on each available GPU model"]
    for technique_set in sets:
        lines.append(f"  {technique_set.label}")
    lines.append(f"micro-batches up to {largest}; each trial follows from those before it")
    effective_batch = options.effective_batch_for(config)
    if effective_batch:
        lines.append(f"then the fastest way to effective batch {effective_batch}")
    return "\n".join(lines)


def _run(
    config: SweepConfig,
    sets: Sequence[TechniqueSet],
    options: BatchSizeOptions,
    folder: RunFolder,
    check_model: CheckModel,
) -> int:
    """Tune the batch of every technique set, and print the answers. Returns the exit status."""
    from orchestrator.running.batch_size_run import BatchSizeGoal, tune_batch_sizes

    stream = sys.stderr if options.as_json else sys.stdout
    print(_plan_text(config, sets, options), file=stream, flush=True)
    goal = BatchSizeGoal(
        effective_batch=options.effective_batch_for(config),
        memory_margin=options.memory_margin,
        tolerance=options.tolerance,
        max_micro_batch=options.max_micro_batch,
        exact=options.exact,
    )
    tuned = tune_batch_sizes(config, sets, goal, options, folder, check_model=check_model)
    _print_answers(config, tuned, folder, as_json=options.as_json)
    return _exit_status(tuned)


def _exit_status(tuned: Sequence[HardwareAnswers]) -> int:
    if any(part.is_interrupted for part in tuned):
        return cli.EXIT_INTERRUPTED
    for part in tuned:
        for answer in part.answers:
            if answer.largest is None and answer.unfinished:
                return cli.EXIT_FAILURE
    return cli.EXIT_OK


def _print_answers(
    config: SweepConfig, tuned: Sequence[HardwareAnswers], folder: RunFolder, *, as_json: bool
) -> None:
    """Print the answers, and write them to the run folder."""
    from orchestrator.analysis.batch_size import FILE
    from orchestrator.reporting.batch_size import describe
    from orchestrator.running.reports import command_of
    from orchestrator.storage.layout import TRIALS

    document = {
        "name": config.name,
        "command": command_of("batch_size"),
        "hardware": [part.to_json() for part in tuned],
    }
    folder.keep(FILE, document)
    if as_json:
        print(json.dumps(document, indent=2))
        return
    for part in tuned:
        for answer in part.answers:
            print(f"\n{describe(answer, part.hardware)}")
    print("\nFiles")
    paths = [folder.path / FILE]
    paths += [part.folder.path / TRIALS for part in tuned]
    for path in paths:
        if path.exists():
            print(f"  {path}")


if __name__ == "__main__":
    cli.finish(main)
