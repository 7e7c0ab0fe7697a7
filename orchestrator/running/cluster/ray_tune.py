"""The trials of a session run by Ray Tune, one slot per GPU, and which trial takes a free slot."""

import functools
import logging
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from ray import tune
from ray.tune.execution import class_cache
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import ConcurrencyLimiter
from threadpoolctl import threadpool_limits

from jobs.isolation.scratch import TUNE_PREFIX, own_folder
from jobs.spec import Needs
from orchestrator.running.cluster.gpu_slot import INFRASTRUCTURE_RETRIES
from orchestrator.running.cluster.membership import Membership
from orchestrator.running.cluster.searcher import SessionSearcher, StatelessPickle
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
    """Run the session's trials until it has finished; returns sentences about unfit GPUs. A trial
    wants to reserve what is ``asked``; a zero stands for a GPU's share of the node. ``on_slots``
    gets the slots of each GPU model when they may have changed. Raises ClusterError if no slot can
    be started."""
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


SLOT_START_SECONDS = 60.0
"""How long a trial waits for a slot that is starting. Another user of Ray may hold its GPU."""
BETWEEN_TRIALS_SECONDS = 3.0
"""A slot that runs no trial for longer counts as lost. Tune does not report every loss."""


class SlotScheduler(StatelessPickle, FIFOScheduler):
    """First come, first served, except that a trial waits for the slot that starts for it. Tune
    gives its first waiting trial to the next free slot, and cancels the slot that is starting for
    it. So a new slot, or a replacement for a lost one, would never start while others are busy."""

    def __init__(
        self, slots: Callable[[], int], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._slots = slots
        self._clock = clock
        self._live: list[tuple[float, Any]] = []
        """(time when added, trial) of each unfinished trial, in the order of adding."""
        self._started_slots = 0
        self._started_slots_at = 0.0

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self._live.append((self._clock(), trial))

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """The trial for a slot that is free; None if all wait for a slot that is starting."""
        self._live = [entry for entry in self._live if not entry[1].is_finished()]
        waiting = [entry for entry in self._live if entry[1].status == Trial.PENDING]
        starting = self._starting_slots(running=len(self._live) - len(waiting))
        # The first trials wait for the slots that start, unless they have waited for too long.
        overdue_since = self._clock() - SLOT_START_SECONDS
        for position, (added_at, trial) in enumerate(waiting):
            if position >= starting or added_at < overdue_since:
                return trial
        return None

    def _starting_slots(self, *, running: int) -> int:
        """How many slots have yet to start; 0 until the first one has started."""
        now = self._clock()
        # Between two trials of a slot, fewer trials run for a moment. No slot was lost then.
        if running >= self._started_slots or now > self._started_slots_at + BETWEEN_TRIALS_SECONDS:
            self._started_slots = running
            self._started_slots_at = now
        return max(0, self._slots() - self._started_slots) if self._started_slots else 0
