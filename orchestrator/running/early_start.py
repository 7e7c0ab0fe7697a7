"""How every verb that measures starts: a checked configuration, and what begins before Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs.node.processes import keep_bytecode
from orchestrator.planning.config import load_config
from orchestrator.planning.keys.loggers import LoggerError, missing_packages
from orchestrator.planning.settings import SweepConfig
from orchestrator.running.options import RunOptions, VerbOptions
from orchestrator.running.ray_address import is_elsewhere, preloading

if TYPE_CHECKING:
    from orchestrator.storage.run_folder import RunFolder

CheckModel = Callable[[], object]
"""Waits until the model has been built once. Raises ConfigError if it cannot be built."""
Say = Callable[[str], object]
"""Takes a note for the user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    config: SweepConfig
    options: RunOptions
    folder: RunFolder
    """The run folder, locked."""
    check_model: CheckModel = lambda: None
    """Called before the first trial."""


def checked_config(options: VerbOptions, say: Say) -> SweepConfig:
    """The configuration, with its files and loggers checked. Raises ConfigError or LoggerError."""
    from orchestrator.planning.prechecks import mistakes  # not for --help

    config = load_config(
        options.config,
        trust_remote_code=options.trust_remote_code,
        allow_own_code=options.allow_own_code,
        choices=options.choices,
    )
    if options.gpus is not None:
        resources = config.resources.model_copy(update={"gpus_per_trial": options.gpus})
        config = replace(config, resources=resources)
    for note in config.notes:
        say(note)
    elsewhere, asks_hub = is_elsewhere(options.address), not options.dry_run
    for note in mistakes.check_files(config, runs_elsewhere=elsewhere, asks_hub=asks_hub):
        say(note)
    _check_packages(config, options, say)
    return config


def _check_packages(config: SweepConfig, options: VerbOptions, say: Say) -> None:
    """Name the packages that loggers lack. Only the exported training needs those of report_to."""
    own = config.left_aside.get("report_to") or ()
    for note in missing_packages([own] if isinstance(own, str) else own):
        say(f"report_to: to train with the exported files, {note}")
    for problem in missing_packages(config.loggers):
        if not options.dry_run:
            raise LoggerError(f"loggers: {problem}")
        say(f"loggers: {problem}")


@contextlib.contextmanager
def early_start(
    config: SweepConfig, options: VerbOptions, suffix: str, say: Say
) -> Iterator[Start]:
    """The locked run folder, while the slots' parents import torch, and another process builds the
    model once, because every trial would fail if that fails. ``suffix`` ends the folder's default
    name. Raises ConfigError if it does, and what ``locked_run_folder`` raises."""
    from orchestrator.planning.prechecks.mistakes import model_facts
    from orchestrator.running.run_lock import locked_run_folder

    beside = config.output.with_name(f"{config.output.name}{suffix}") if suffix else config.output
    target = options.output or beside
    # Before the first process starts, because each inherits it.
    keep_bytecode()
    with preloading(options.address, config.resources), ThreadPoolExecutor(max_workers=1) as pool:
        facts = pool.submit(model_facts, config, say)
        # Here, so that the import takes its seconds while the model is built.
        import orchestrator.running.cluster  # noqa: F401

        # The answer is there already if the model was built before.
        if facts.done():
            facts.result()
        with locked_run_folder(target, resume=options.resume, force=options.force) as folder:
            yield Start(config=config, options=options, folder=folder, check_model=facts.result)
