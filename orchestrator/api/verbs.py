"""Every verb as a function, which returns objects instead of printing."""

from __future__ import annotations

import contextlib
import pkgutil
import sys
import warnings
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from orchestrator.analysis.comparison.changes import Comparison
from orchestrator.analysis.explanation.result import Explanation
from orchestrator.api.predictions import Config, source_of
from orchestrator.api.run import Answer, Run, load, local_folder
from orchestrator.planning.problems import advice
from orchestrator.storage.location import Location, location
from orchestrator.units import duration_seconds, size_bytes

if TYPE_CHECKING:
    from orchestrator.reporting.report import Report
    from orchestrator.running.batch_size_run import HardwareAnswers
    from orchestrator.running.early_start import Start
    from orchestrator.running.sweep_run import SweepEnd
    from orchestrator.storage.run_folder import RunFolder

RunLike = Run | Location | str
"""A run, its folder or its URI."""


class SweepFailedError(RuntimeError):
    """No trial of a sweep ended ok. The message says why; the run folder holds all records."""


class Measuring(TypedDict, total=False):
    """The options that all measuring verbs share. They are those of the command line."""

    output: Location | str | None
    """The run folder or URI, in place of the configuration's."""
    time_budget: float | str | None
    """Seconds, or text such as "15m"."""
    resume: bool
    fresh: bool
    force: bool
    address: str | None
    trust_remote_code: bool
    allow_own_code: bool
    choices: Sequence[str]
    """Values of axes in place of the configuration's, such as "precision=bf16"."""
    gpus: int | None
    """GPUs of a trial; None: as ``resources.gpus_per_trial`` says."""


def sweep(config: Config, **measuring: Unpack[Measuring]) -> Run:
    """Measure every configuration of a sweep, write its tables and pages, and return the run.

    An interrupted sweep returns what was measured until then. Raises ConfigError, LoggerError,
    ClusterError, NoSuchGpuError, RunFolderError, FileExistsError, NothingToResumeError or
    SweepFailedError.
    """
    from orchestrator.running.sweep_run import run_sweep

    with _started(config, measuring) as start:
        end = run_sweep(start)
        return _published(start.folder, end)


def tune(
    config: Config,
    *,
    memory: int | str | Sequence[int | str] = (),
    gpu_minutes: float = 5.0,
    effective_batch: int | None = None,
    recipe: Literal["own", "usual", "any"] = "usual",
    **measuring: Unpack[Measuring],
) -> Run:
    """Find the fastest configuration in the memory without axes, and return the run.

    ``memory`` is one size or several, in bytes or as text such as "24GiB"; empty: the GPU's own.
    ``Run.tune_results`` has the result for each of them. Raises what ``sweep`` raises.
    """
    from orchestrator.planning.tune_space.space import Goal
    from orchestrator.running.tune_run import run_tune

    sizes = [memory] if isinstance(memory, (int, str)) else memory
    goal = Goal(
        budgets=tuple(sorted({size_bytes(size) for size in sizes})),
        effective_batch=effective_batch,
        recipe=recipe,
    )
    with _started(config, measuring, suffix="-tune") as start:
        end = run_tune(start, goal, 60 * gpu_minutes)
        return _published(start.folder, end)


def batch_size(
    config: Config,
    *,
    every_set: bool = False,
    effective_batch: int | None = None,
    memory_margin: float = 0.05,
    tolerance: float = 0.02,
    max_micro_batch: int | None = None,
    exact: bool = False,
    **measuring: Unpack[Measuring],
) -> list[HardwareAnswers]:
    """Find the batch to train with, for every available GPU model.

    ``every_set`` takes every technique set of the
    sweep. The other arguments are the fields of ``BatchSizeGoal``; ``effective_batch`` is the
    configuration's by default. Raises what ``sweep`` and ``sets_to_tune`` raise.
    """
    from orchestrator.planning.technique_sets import sets_to_tune
    from orchestrator.running.batch_size_run import tune_batch_sizes
    from orchestrator.search.batch_size.batch_size_search import BatchSizeGoal

    with _started(config, measuring, suffix="-batch-size") as start:
        named = measuring.get("choices", ())
        sets, batch = sets_to_tune(start.config, effective_batch, every=every_set, named=named)
        goal = BatchSizeGoal(
            effective_batch=batch,
            memory_margin=memory_margin,
            tolerance=tolerance,
            max_micro_batch=max_micro_batch,
            exact=exact,
        )
        return tune_batch_sizes(start, sets, goal)


@contextlib.contextmanager
def _started(config: Config, measuring: Measuring, *, suffix: str = "") -> Iterator[Start]:
    """A checked configuration and its locked run folder. Notes become warnings."""
    from orchestrator.running.early_start import checked_config, early_start
    from orchestrator.running.options import VerbOptions

    # A word such as dry_run, which only the command line knows, must not start a measurement.
    known = list(Measuring.__annotations__)
    if stray := next((name for name in measuring if name not in known), None):
        raise TypeError(f"no option {stray}; {advice(stray, known)}")
    given: dict[str, Any] = {**measuring}
    time_budget = given.pop("time_budget", None)
    if time_budget is not None:
        given["time_budget_seconds"] = duration_seconds(time_budget)
    if isinstance(given.get("output"), str):
        given["output"] = location(given["output"])
    options = VerbOptions(config=source_of(config), **given)
    checked = checked_config(options, warnings.warn)
    with early_start(checked, options, suffix, _print) as start:
        yield start


def _print(note: str) -> None:
    print(f"note: {note}", file=sys.stderr)


def _published(folder: RunFolder, end: SweepEnd) -> Run:
    from orchestrator.reporting.publish import publish

    for note in publish(folder.path).unwritten:
        _print(note)
    if end.failure and not end.is_interrupted:
        raise SweepFailedError(end.failure)
    return load(folder.path)


def recommend(
    run: RunLike,
    *,
    memory: int | str | None = None,
    effective_batch: int | None = None,
    all_recipes: bool = False,
    objective: str = "samples_per_second",
    steps: int | None = None,
    price_per_hour: float | None = None,
) -> Answer:
    """The best configuration of a run under constraints; see ``Run.recommend``.

    ``memory`` is bytes, or text such as "24GiB". Raises what ``load`` and ``Run.recommend`` raise.
    """
    return _run(run).recommend(
        memory=memory,
        effective_batch=effective_batch,
        all_recipes=all_recipes,
        objective=objective,
        steps=steps,
        price_per_hour=price_per_hour,
    )


def compare(before: RunLike, after: RunLike) -> Comparison:
    """How the configurations of two runs differ. Raises what ``load`` raises."""
    return _run(before).compare(_run(after))


def explain(run: RunLike, before: str, after: str) -> Explanation:
    """Why one trial of a run differs from another. Both are given as a trial id or its beginning.

    Raises what ``load`` raises, LookupError or NotExplainableError.
    """
    return _run(run).explain(before, after)


def report(run: Location | str, *, allow_fewer_rows: bool = False) -> tuple[Path, ...]:
    """Write the tables and pages of a run in its folder, also while it runs. Returns their paths.

    Raises FileNotFoundError, UnreadableRunError, RunFolderError, or FewerRowsError if a table would
    lose rows and ``allow_fewer_rows`` is not set.
    """
    return republished(local_folder(run), allow_fewer_rows=allow_fewer_rows).files


def republished(folder: Path, *, allow_fewer_rows: bool) -> Report:
    """As ``report``, for a folder. Returns the report."""
    from orchestrator.reporting.publish import publish
    from orchestrator.storage.run_folder import RunFolder
    from orchestrator.storage.tables.table_reader import FewerRowsError

    try:
        return publish(folder, keeps_rows=True)
    except FewerRowsError:
        if not allow_fewer_rows:
            raise
    RunFolder(folder).set_tables_aside()
    return publish(folder)


def doctor(
    *, address: str | None = None, nvme: Path | str | None = None, calibrate: bool = False
) -> list[Mapping[str, Any]]:
    """Check whether this machine, or every node of a Ray cluster, is fit to measure on.

    Returns a report for each node, with its findings. ``nvme`` is a folder whose disk is measured.
    ``calibrate`` measures every GPU, which must be idle.
    """
    from orchestrator.running.examination import examined

    return examined(address, nvme=None if nvme is None else Path(nvme), calibrates=calibrate)


def init(
    name: str = "quickstart", output: Path | str | None = None, *, force: bool = False
) -> tuple[Path, ...]:
    """Write a shipped configuration and the schema for editors. Returns the files that changed.

    Raises LookupError if there is no such configuration, and FileExistsError if another file has
    the name, unless ``force``.
    """
    from orchestrator.planning.shipped import write_shipped

    return write_shipped(name, Path(output or f"{name}.yaml"), force=force)


def completion(shell: Literal["bash", "zsh", "fish"]) -> str:
    """A script that completes ``orchestrator`` in a shell."""
    import shtab

    parser: ArgumentParser = pkgutil.resolve_name("orchestrator.completion:all_verbs")()
    return str(shtab.complete(parser, shell))


def _run(run: RunLike) -> Run:
    return run if isinstance(run, Run) else load(run)
