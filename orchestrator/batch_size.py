"""Find the batch to train with, for every available GPU model: the largest micro-batch that fits,
the fastest, the smallest that is as fast, and the accumulation for an effective batch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator import argument_types, cli
from orchestrator.running.options import VerbOptions
from orchestrator.units import count

if TYPE_CHECKING:
    from orchestrator.planning.settings import SweepConfig
    from orchestrator.planning.technique_sets import TechniqueSet
    from orchestrator.running.batch_size_run import HardwareAnswers
    from orchestrator.running.early_start import Start
    from orchestrator.storage.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSizeOptions(VerbOptions):
    """The options of the command line."""

    every_set: bool = False
    """Whether to tune every technique set of the sweep, not only the baseline."""
    effective_batch: int | None = None
    """None: the configuration's, if it names one."""
    memory_margin: float
    tolerance: float
    max_micro_batch: int | None = None
    exact: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune the batch sizes. Returns the exit status."""
    options = BatchSizeOptions(**vars(command_line().parse_args(arguments)))
    return cli.measured(options, lambda config: _of(config, options), suffix="-batch-size")


def _of(config: SweepConfig, options: BatchSizeOptions) -> _BatchSizeVerb:
    from orchestrator.planning.technique_sets import sets_to_tune

    sets, effective_batch = sets_to_tune(
        config, options.effective_batch, every=options.every_set, named=options.choices
    )
    return _BatchSizeVerb(config, options, sets, effective_batch)


def command_line() -> argparse.ArgumentParser:
    parser = cli.verb_parser("batch_size", __doc__, "some batch could not be tuned")
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
    every = "tune every technique set of the sweep, not only its baseline"
    add("--all", dest="every_set", action="store_true", help=every)
    return parser


@dataclass(frozen=True, slots=True)
class _BatchSizeVerb:
    config: SweepConfig
    options: BatchSizeOptions
    sets: Sequence[TechniqueSet]
    effective_batch: int | None

    def show_plan(self) -> int:
        """Print the technique sets and the model's size."""
        from orchestrator.planning.prechecks.mistakes import model_facts

        facts = model_facts(self.config, cli.print_note)
        if self.options.as_json:
            listed = [{"label": one.label, "choices": dict(one.choices)} for one in self.sets]
            document = {
                "name": self.config.name,
                "technique_sets": listed,
                "max_micro_batch": self.options.max_micro_batch,
                "effective_batch": self.effective_batch,
                "model": facts.to_json(),
            }
            cli.print_json(document)
            return cli.EXIT_OK
        print(self._plan_text())
        for name, text in facts.lines():
            print(f"{name}: {text}")
        return cli.EXIT_OK

    def _plan_text(self) -> str:
        number = count(len(self.sets), "technique set")
        largest = self.options.max_micro_batch or "512, or 64 without a GPU"
        lines = [f"{self.config.name}: the batch size of {number} on each available GPU model"]
        lines += [f"  {technique_set.label}" for technique_set in self.sets]
        lines.append(f"micro-batches up to {largest}; each trial follows from those before it")
        if self.effective_batch:
            lines.append(f"then the fastest way to effective batch {self.effective_batch}")
        return "\n".join(lines)

    def run(self, start: Start) -> int:
        """Tune the batch of every technique set, and print the answers."""
        from orchestrator.running.batch_size_run import tune_batch_sizes
        from orchestrator.search.batch_size.batch_size_search import BatchSizeGoal

        options = self.options
        stream = sys.stderr if options.as_json else sys.stdout
        print(self._plan_text(), file=stream, flush=True)
        goal = BatchSizeGoal(
            effective_batch=self.effective_batch,
            memory_margin=options.memory_margin,
            tolerance=options.tolerance,
            max_micro_batch=options.max_micro_batch,
            exact=options.exact,
        )
        tuned = tune_batch_sizes(start, self.sets, goal)
        _print_answers(self.config, tuned, start.folder, as_json=options.as_json)
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
    from orchestrator.analysis.batch_size_answer import FILE
    from orchestrator.reporting.verbs.batch_size import describe
    from orchestrator.running.measurement import command_of
    from orchestrator.storage.layout import TRIALS

    document = {
        "name": config.name,
        "command": command_of("batch_size"),
        "hardware": [part.to_json() for part in tuned],
    }
    folder.keep(FILE, document)
    if as_json:
        cli.print_json(document)
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
