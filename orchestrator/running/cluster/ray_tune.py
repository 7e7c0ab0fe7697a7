"""A session's trials run by Ray Tune, one slot per GPU."""

import functools
import logging
import os
import signal
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from ray import tune
from ray.tune.execution import class_cache
from ray.tune.search import ConcurrencyLimiter
from threadpoolctl import threadpool_limits

from jobs.isolation.scratch import TUNE_PREFIX, own_folder
from jobs.spec import Needs
from orchestrator.running.cluster.gpu_slot import INFRASTRUCTURE_RETRIES
from orchestrator.running.cluster.membership import Membership
from orchestrator.running.cluster.scheduler import SlotScheduler
from orchestrator.running.cluster.searcher import SessionSearcher
from orchestrator.running.cluster.slot_actor import SlotTrainable
from orchestrator.running.cluster.slot_watch import SlotWatch
from orchestrator.running.cluster.tune_callback import TuneCallback
from orchestrator.running.nodes import Cluster, ClusterError
from orchestrator.running.session import Session

# Tune prints a traceback for every actor that dies. Here the session prints one line instead, and
# the record has the reason.
logging.getLogger("ray.tune").setLevel(logging.CRITICAL)

# Tune gives its actors an environment variable for PyTorch Lightning, which no trial uses. An actor
# with variables of its own gets a new worker process, instead of one that Ray has already started.
class_cache.DEFAULT_ENV_VARS.clear()


def run_trials(
    session: Session,
    cluster: Cluster,
    asked: Needs | None = None,
    *,
    on_slots: Callable[[Mapping[str, int]], object] | None = None,
    trainable: type[tune.Trainable] = SlotTrainable,
    retries: int = INFRASTRUCTURE_RETRIES,
) -> tuple[str, ...]:
    """Run the session's trials until it has finished; returns sentences about unfit GPUs.

    ``asked`` is what the configuration wants a trial to reserve; a zero stands for a GPU's share of
    the node. ``on_slots`` gets the slots of each GPU model when they may have changed. A trial that
    lost its actor is started again at most ``retries`` times. Raises ClusterError if no slot can be
    started.
    """
    # Three parts report to the session: nodes that join, trials that run, actors that are lost.
    membership = Membership(session, cluster, asked)
    searcher = SessionSearcher(session, membership.slots.placements)
    limiter = ConcurrencyLimiter(searcher, membership.trials_at_once)

    def listen(slots: Mapping[str, int]) -> None:
        limiter.set_max_concurrency(membership.trials_at_once)
        if on_slots is not None:
            on_slots(slots)

    membership.on_slots = listen
    # A Ray that was started for this sweep has no other user. If no slot starts there, none ever
    # will, so the sweep gives up.
    on_stall = membership.give_up if cluster.is_own else None
    watch = SlotWatch(session.message, on_stall=on_stall)
    environment = cluster.trial_nodes[0].environment
    callback = TuneCallback(session, searcher, membership, watch, environment, retries=retries)
    # The search computes on one thread, because trials on this host need the other cores.
    with own_folder(TUNE_PREFIX) as storage, _interruptible(session), threadpool_limits(1):
        _tuner(trainable, limiter, [callback, membership, watch], membership, storage).fit()
    if membership.given_up:
        raise ClusterError(membership.given_up)
    return tuple(membership.unhealthy.notes)


def _tuner(
    trainable: type[tune.Trainable],
    limiter: ConcurrencyLimiter,
    callbacks: list[tune.Callback],
    membership: Membership,
    storage: Path,
) -> tune.Tuner:
    """A tuner that places trials and keeps actors. It saves no results and no checkpoints."""
    return tune.Tuner(
        tune.with_resources(trainable, _reservation),
        tune_config=tune.TuneConfig(
            search_alg=limiter,
            scheduler=SlotScheduler(lambda: membership.slots.total),
            # -1 means no limit. The searcher tells Tune when there are no more trials.
            num_samples=-1,
            # An actor keeps its slot warm for the next trial.
            reuse_actors=True,
            # By default the name of a Tune trial's folder would be its whole config.
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        ),
        run_config=tune.RunConfig(
            name="sweep",
            # Tune insists on a folder; a temporary one keeps its files out of the run.
            storage_path=str(storage),
            verbose=0,
            callbacks=callbacks,
            stop=membership,
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_at_end=False, checkpoint_frequency=0
            ),
        ),
    )


def _reservation(config: Mapping[str, Any]) -> tune.PlacementGroupFactory:
    return _equal_reservation(tuple(config["bundle"].items()), config["label_selector"])


@functools.cache
def _equal_reservation(
    bundle: tuple[tuple[str, float], ...], label_selector: str
) -> tune.PlacementGroupFactory:
    """One object for all equal reservations. Otherwise Tune would keep one for every trial."""
    selectors = [{"ray.io/node-id": label_selector}] if label_selector else None
    return tune.PlacementGroupFactory([dict(bundle)], bundle_label_selector=selectors)


@contextmanager
def _interruptible(session: Session) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM lets running trials finish. The second ends the sweep at once."""

    def interrupt(received: int, frame: FrameType | None) -> None:
        if received == signal.SIGHUP:
            _leave_terminal()
        session.interrupt()
        for number in previous:
            signal.signal(number, signal.default_int_handler)

    previous: dict[int, Any] = {}
    try:
        for interruption in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # A command under nohup ignores the end of its terminal.
            if signal.getsignal(interruption) is not signal.SIG_IGN:
                previous[interruption] = signal.signal(interruption, interrupt)
    except ValueError:  # not the main thread: a notebook or a test
        yield
        return
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _leave_terminal() -> None:
    """Print nothing more to a terminal that has been closed, because every print would fail."""
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
