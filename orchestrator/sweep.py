"""Measure every configuration of a sweep and map its memory/speed frontier."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator import cli
from orchestrator.running.options import VerbOptions

if TYPE_CHECKING:
    from orchestrator.planning.settings import SweepConfig
    from orchestrator.running.early_start import Start

_DEFAULT_GPU = "h200"


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepOptions(VerbOptions):
    """The options of the command line."""

    predict: str | None = None
    """The GPU to predict the memory of a dry run's plan for; None: predict nothing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sweep, or print its plan. Returns the exit status."""
    given = command_line().parse_args(arguments)
    given.dry_run = given.dry_run or given.predict is not None
    options = SweepOptions(**vars(given))
    return cli.measured(options, lambda config: _SweepVerb(config, options))


def command_line() -> argparse.ArgumentParser:
    failure = "the sweep could not run, or no trial ended ok"
    parser = cli.verb_parser("sweep", __doc__, failure)
    cli.add_options(parser, output="the config's, runs/NAME")
    predict = (
        "print the plan with the memory that its trials are predicted to take of this GPU, and"
        f" stop (default: {_DEFAULT_GPU})"
    )
    parser.add_argument("--predict", nargs="?", const=_DEFAULT_GPU, metavar="GPU", help=predict)
    return parser


@dataclass(frozen=True, slots=True)
class _SweepVerb:
    config: SweepConfig
    options: SweepOptions

    def run(self, start: Start) -> int:
        """Run the sweep, write its report, and print the summary."""
        from orchestrator.reporting.publish import publish
        from orchestrator.reporting.terminal.summary import print_summary
        from orchestrator.running.sweep_run import run_sweep

        end = run_sweep(start)
        # Write the report even if the sweep failed: the finished rows are worth reading.
        report = publish(start.folder.path)
        print_summary(report, as_json=self.options.as_json)
        cli.print_notes(report.unwritten)
        if end.is_interrupted:
            cli.print_note("interrupted: the same command with --resume runs the other trials")
            return cli.EXIT_INTERRUPTED
        if end.failure:
            print(end.failure, file=sys.stderr)
        return cli.EXIT_FAILURE if end.failure or report.unwritten else cli.EXIT_OK

    def show_plan(self) -> int:
        """Print the plan. With --predict, also print the predicted memory of its trials."""
        from jobs.node import nvml
        from orchestrator.planning.plan import plan
        from orchestrator.planning.prechecks.mistakes import model_facts
        from orchestrator.planning.prechecks.technique_requirements import missing_packages
        from orchestrator.reporting.verbs.dry_run import describe, to_json
        from orchestrator.running.ray_address import is_elsewhere

        is_remote = is_elsewhere(self.options.address)
        has_gpu = bool(self.options.predict or nvml.visible_uuids())
        planned = plan(self.config, has_gpu=has_gpu or is_remote)
        if not is_remote:
            cli.print_notes(missing_packages(planned.trials))
        facts = model_facts(self.config, cli.print_note, planned.trials)
        cli.print_notes(facts.refused)
        status = cli.EXIT_OK if planned.trials else cli.EXIT_FAILURE
        predicted = None
        if self.options.predict is not None:
            from orchestrator.api.predictions import predicted as predict

            predicted = predict(self.config, planned.trials, self.options.predict)
        if self.options.as_json:
            document = {**to_json(planned, self.config), "model": facts.to_json()}
            if predicted is not None:
                document["predicted"] = predicted.to_json()
            cli.print_json(document)
            return status
        print(describe(planned, self.config, facts.lines()))
        if predicted is not None:
            print(f"\nPredicted for {predicted.gpu}, GiB\n{predicted}")
        return status


if __name__ == "__main__":
    cli.finish(main)
