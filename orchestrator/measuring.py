"""What the verbs that measure share: a locked run folder, and what begins while Ray starts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from jobs.node.bytecode import keep_bytecode
from orchestrator.cli import EXIT_FAILURE, EXIT_USAGE, model_facts
from orchestrator.planning.loggers import LoggerError
from orchestrator.storage.location import Location

if TYPE_CHECKING:
    from orchestrator.planning.settings import SweepConfig
    from orchestrator.running.options import RunOptions
    from orchestrator.running.reports import CheckModel
    from orchestrator.storage.run_folder import RunFolder


def with_early_start(
    config: SweepConfig,
    options: RunOptions,
    output: Location,
    run: Callable[[RunFolder, CheckModel], int],
) -> int:
    """Call ``run`` with the locked run folder, while other processes begin what takes seconds.

    The slots' parent processes import torch, and one process builds the model once. ``run`` also
    gets the function that waits for this check. Returns its exit status, or that of ``holding``.
    Raises ConfigError if the model cannot be built.
    """
    from orchestrator.running import ray_address

    # Before the first process starts, because each inherits it.
    keep_bytecode()
    with (
        ray_address.preloading(options.address, config.resources.cpus_per_trial),
        checking_model(config) as check_model,
    ):

        def run_in(folder: RunFolder) -> int:
            return run(folder, check_model)

        return holding(output, run_in, resume=options.resume, force=options.force)


@contextlib.contextmanager
def checking_model(config: SweepConfig) -> Iterator[CheckModel]:
    """Build the model once in another process, because every trial would fail if that fails.

    That takes seconds, in which this process imports and starts Ray. Yields a function that waits
    for the end of the check. The function and the context raise ConfigError if the model cannot be
    built.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=1) as pool:
        facts = pool.submit(model_facts, config)
        import orchestrator.running.cluster  # noqa: F401

        # The answer is there already if the model was built before.
        if facts.done():
            facts.result()
        yield facts.result


def holding(
    target: Location, run: Callable[[RunFolder], int], *, resume: bool, force: bool = False
) -> int:
    """Lock the run folder and call ``run`` with it. Returns the exit status of ``run``.

    A run at a URI is downloaded before ``run`` and uploaded after it. A folder that holds other
    files than a run's is refused unless ``force``. If the run cannot begin, the reason is printed
    on stderr and the exit status says so.
    """
    # Not before: a dry run needs none of it.
    from orchestrator.running.nodes import ClusterError, NoSuchGpuError
    from orchestrator.running.run_lock import NothingToResumeError, locked_run_folder
    from orchestrator.storage.run_folder import RunFolderError
    from orchestrator.storage.run_metadata import UnreadableRunError

    try:
        with locked_run_folder(target, resume=resume, force=force) as folder:
            return run(folder)
    except (FileExistsError, NothingToResumeError) as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    except (
        ClusterError,
        NoSuchGpuError,
        RunFolderError,
        LoggerError,
        UnreadableRunError,
    ) as error:
        print(error, file=sys.stderr)
        return EXIT_FAILURE
