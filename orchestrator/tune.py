"""Find the fastest configuration in your memory, without axes, and write a training script."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import argument_types, cli
from orchestrator.running.options import VerbOptions
from orchestrator.units import count

if TYPE_CHECKING:
    from orchestrator.analysis.dataset import Dataset
    from orchestrator.analysis.recommendation import Offer
    from orchestrator.planning.settings import SweepConfig
    from orchestrator.planning.tune_space.space import Goal
    from orchestrator.planning.tune_space.values import Recipe
    from orchestrator.reporting.verbs.tune_result import TuneResult
    from orchestrator.running.early_start import Start

_GPU_MINUTES = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneVerbOptions(VerbOptions):
    """The options of the command line."""

    memory: Sequence[int] = ()
    """Memory budgets in bytes; empty: the GPU's own memory."""
    gpu_minutes: float = _GPU_MINUTES
    """GPU time of all trials together."""
    effective_batch: int | None = None
    recipe: Recipe = "usual"

    @property
    def goal(self) -> Goal:
        """What to find."""
        from orchestrator.planning.tune_space.space import Goal

        return Goal(
            budgets=tuple(sorted(set(self.memory))),
            effective_batch=self.effective_batch,
            recipe=self.recipe,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune, and print the result for each budget. Returns the exit status."""
    options = TuneVerbOptions(**vars(command_line().parse_args(arguments)))
    return cli.measured(options, lambda config: _TuneVerb(config, options), suffix="-tune")


def command_line() -> argparse.ArgumentParser:
    parser = cli.verb_parser("tune", __doc__, "nothing measured fits some budget")
    cli.add_options(parser, output="runs/NAME-tune")
    add = parser.add_argument
    memory = "GPU memory to stay within, one size or several (default: the GPU's own)"
    add("--memory", type=argument_types.sizes, default=(), metavar="24GiB,40GiB", help=memory)
    about = f"GPU time of all trials together (default: {_GPU_MINUTES:g})"
    above_zero = argument_types.above_zero
    add("--gpu-minutes", type=above_zero, default=_GPU_MINUTES, metavar="N", help=about)
    batch = "samples per optimizer step (default: yours if you accumulate, else any)"
    add("--effective-batch", type=argument_types.count, metavar="N", help=batch)
    recipe = (
        "own: only what trains like your arguments; usual (default): also what most people train "
        "with, as a second result; any: all other optimizers and adapters, too"
    )
    add("--recipe", choices=("own", "usual", "any"), default="usual", help=recipe)
    return parser


@dataclass(frozen=True, slots=True)
class _TuneVerb:
    config: SweepConfig
    options: TuneVerbOptions

    def __post_init__(self) -> None:
        if self.config.axes or self.config.subsets or self.config.trials:
            own = {axis: self.config.baseline.get(axis) for axis in self.config.axes_in_play}
            kept = ", ".join(f"{axis}: {value}" for axis, value in own.items() if value is not None)
            note = "tune chooses what to try by itself, and sweeps no axes of this file"
            cli.print_note(f"{note}; its training is that with {kept}" if kept else note)

    def show_plan(self) -> int:
        """Print what is varied and what is not."""
        from jobs.node import nvml
        from orchestrator.running.ray_address import is_elsewhere
        from orchestrator.running.tune_run import not_tried_lines, space_of

        is_remote = is_elsewhere(self.options.address)
        space = space_of(
            self.config,
            self.options.goal,
            60 * self.options.gpu_minutes,
            has_gpu=is_remote or bool(nvml.visible_uuids()),
            is_remote=is_remote,
        )
        considered = len(space.plan.trials)
        if self.options.as_json:
            document = {
                "name": self.config.name,
                "considered": considered,
                "axes": {axis: list(values) for axis, values in space.config.axes.items()},
                "not_tried": space.not_tried,
                "effective_batch": space.effective_batch,
                "budgets": list(space.config.budgets),
            }
            cli.print_json(document)
            return cli.EXIT_OK
        print(f"{self.config.name}: {count(considered, 'configuration')} considered")
        for axis, values in space.config.axes.items():
            print(f"  {axis}: {', '.join(map(str, values))}")
        print("not tried (--json gives each value's reason in full)")
        for line in not_tried_lines(space.not_tried):
            print(line)
        return cli.EXIT_OK

    def run(self, start: Start) -> int:
        """Search, publish the run, and print the results."""
        from orchestrator.reporting.publish import publish
        from orchestrator.running.tune_run import run_tune

        end = run_tune(start, self.options.goal, 60 * self.options.gpu_minutes)
        report = publish(start.folder.path)
        # The run folder names none: it may be given to others.
        report_to = self.config.left_aside.get("report_to", ())
        results = _print_results(report.dataset, self.options, report_to)
        cli.print_notes(report.unwritten)
        if end.is_interrupted:
            return cli.EXIT_INTERRUPTED
        if end.failure:
            print(end.failure, file=sys.stderr)
            return cli.EXIT_FAILURE
        if report.unwritten or not results or any(result.best is None for result in results):
            return cli.EXIT_FAILURE
        return cli.EXIT_OK


def _print_results(
    dataset: Dataset, options: TuneVerbOptions, report_to: str | Sequence[str]
) -> Sequence[TuneResult]:
    from orchestrator.reporting.verbs.tune_result import candidate_of, read, to_json
    from orchestrator.reporting.verbs.tune_text import describe, failures

    found = read(dataset)
    exported, gpus = {}, {}
    for result in found.results:
        candidate = candidate_of(dataset, result)
        if candidate is not None and dataset.folder is not None:
            target = dataset.folder / result.folder_name
            exported[result.folder_name] = _export(dataset, candidate, target, report_to)
            gpus[result.folder_name] = candidate.configuration.gpus
    if options.as_json:
        cli.print_json(to_json(found, exported))
    else:
        how = {name: _how_to_train(dataset, files, gpus[name]) for name, files in exported.items()}
        print(describe(found, how))
        if faults := failures(dataset):
            print(f"\n{faults}")
    return found.results


def _how_to_train(dataset: Dataset, files: str, gpus: int) -> str:
    """The command to train with exported files; why there are none, if they were not written."""
    if not Path(files).is_dir():
        return f"files to train with: {files}"
    is_synthetic = (dataset.run.config.get("data") or {}).get("file") is None
    names = ("train.py", "accelerate.yaml")
    script, config = (shlex.quote(str(Path(files, name))) for name in names)
    start = "python" if gpus == 1 else f"accelerate launch --config_file {config}"
    return f"train with: {start} {script}{' --synthetic' if is_synthetic else ''}"


def _export(
    dataset: Dataset, candidate: Offer, target: Path, report_to: str | Sequence[str]
) -> str:
    """Write the files to train a pick. Returns their folder, or the reason why there are none."""
    try:
        from orchestrator.export import export_candidate

        export_candidate(dataset, candidate, target, report_to=report_to, force=True)
    except Exception as error:  # the pick is known all the same
        return f"not written: {error}"
    return str(target)


if __name__ == "__main__":
    cli.finish(main)
