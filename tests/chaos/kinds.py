"""Every kind of fault as a row of data: what is done, and the effect that it has to have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jobs.record import Outcome
from tests.chaos import strikes
from tests.chaos.child import PHASES
from tests.chaos.scene import Scene


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of fault.

    ``strike`` is called while a trial stands still in one of ``phases``. Without it the trial
    strikes itself there, by ``act``, a function of ``tests.support.faults``.
    """

    name: str
    strike: Callable[[Scene], None] | None = None
    act: str = "announce"
    phases: Sequence[str] = PHASES
    outcome: Outcome = Outcome.OK
    """Of the trial that stood still."""
    reason: str = ""
    """What its record's reason has to contain."""
    starts: int = 1
    """How often that trial is begun."""
    always: bool = False
    """The fault meets every attempt of the trial."""
    weight: int = 1
    """How often it is drawn: cheap faults more often than those that cost a cluster."""
    is_last: bool = False
    """The driver ends of itself, and everything else that runs with it."""
    answer: str
    """What becomes of the trial, for the page."""

    @property
    def is_outside(self) -> bool:
        """Done to the trial's surroundings, by ``strike``."""
        return self.strike is not None


def _rows() -> Iterator[Kind]:
    row = "its record; the next trial of the slot is unharmed"
    yield Kind(
        name="the trial hangs",
        act="hang",
        outcome=Outcome.TIMED_OUT,
        reason="no result after",
        answer=row,
    )
    yield Kind(
        name="the GPU's memory runs out",
        act="raise_device_oom",
        outcome=Outcome.OUT_OF_MEMORY,
        answer=row,
    )
    yield Kind(
        name="the host's memory runs out",
        act="raise_memory_error",
        outcome=Outcome.HOST_OUT_OF_MEMORY,
        answer=row,
    )
    yield Kind(
        name="SIGKILL of the trial",
        strike=strikes.kill_child,
        weight=6,
        outcome=Outcome.CRASHED,
        reason="SIGKILL",
        answer=row,
    )
    repeated = "the trial is repeated"
    yield Kind(
        name="SIGKILL of the slot's parent",
        strike=strikes.kill_parent,
        weight=6,
        starts=2,
        answer=repeated,
    )
    yield Kind(
        name="SIGKILL of the actor", strike=strikes.kill_actor, weight=6, starts=2, answer=repeated
    )
    yield Kind(
        name="SIGKILL of the actor, every time",
        strike=strikes.kill_actor,
        always=True,
        starts=3,
        outcome=Outcome.CRASHED,
        answer="repeated twice, then its record",
    )
    elsewhere = (
        "the trial is repeated on another node; nothing lives on the lost one; a new node gets"
        " trials"
    )
    yield Kind(
        name="SIGKILL of a node's raylet", strike=strikes.kill_raylet, starts=2, answer=elsewhere
    )
    yield Kind(name="a node's power fails", strike=strikes.fail_power, starts=2, answer=elsewhere)
    yield Kind(
        name="a node's network is cut", strike=strikes.cut_for_good, starts=2, answer=elsewhere
    )
    yield Kind(
        name="a node's raylet stands still",
        strike=strikes.freeze_raylet,
        starts=2,
        answer=elsewhere,
    )
    yield Kind(
        name="a node's network is cut for a moment",
        strike=strikes.cut_for_a_moment,
        weight=6,
        answer="nothing",
    )
    yield Kind(
        name="two nodes join and leave",
        strike=strikes.add_nodes,
        answer="both get trials, which are repeated elsewhere",
    )
    lost = "the trial is repeated on another; the GPU gets none until it is fit"
    yield Kind(
        name="a GPU does not answer any more", strike=strikes.lose_gpu, starts=2, answer=lost
    )
    yield Kind(
        name="a GPU fails at every CUDA call", strike=strikes.kill_gpu, starts=2, answer=lost
    )
    shared = "trials go to another; if there is none, records measured there say so (`flags`)"
    yield Kind(
        name="another process's memory on a GPU", strike=strikes.share_gpu, starts=2, answer=shared
    )
    yield Kind(
        name="another process on a GPU for a moment",
        strike=strikes.share_gpu_for_a_moment,
        phases=PHASES[PHASES.index("first_step") :],
        starts=2,
        answer="the trial is measured again",
    )
    resumed = "a sentence, exit status 1; a new cluster and `--resume` go on"
    yield Kind(
        name="SIGKILL of the cluster's head (GCS)",
        strike=strikes.kill_gcs,
        starts=2,
        answer=resumed,
    )
    yield Kind(
        name="the cluster runs another Ray",
        strike=strikes.resume_with_other_ray,
        starts=2,
        answer=resumed,
    )
    yield Kind(
        name="SIGKILL of the driver",
        strike=strikes.kill_driver,
        starts=2,
        answer="`--resume` goes on",
    )
    yield Kind(
        name="Ctrl-C",
        strike=strikes.press_ctrl_c,
        is_last=True,
        answer="running trials end; exit status 130; `--resume` goes on",
    )
    yield Kind(
        name="a second driver on the folder",
        strike=strikes.start_second_driver,
        weight=6,
        answer="refused, exit status 1",
    )
    full = "nothing new is started; a sentence, exit status 1; `--resume` goes on"
    yield Kind(
        name="the disk is full", strike=strikes.fill_disk, is_last=True, starts=2, answer=full
    )
    yield Kind(
        name="the disk is full for a while",
        strike=strikes.fill_disk_for_a_while,
        is_last=True,
        answer=full,
    )
    yield Kind(
        name="the records become read-only",
        strike=strikes.make_read_only,
        is_last=True,
        starts=2,
        answer=full,
    )
    yield Kind(
        name="a torn record in the folder",
        strike=strikes.plant_torn_file,
        weight=6,
        answer="left alone",
    )
    yield Kind(
        name="a foreign file in the folder",
        strike=strikes.plant_foreign_file,
        weight=6,
        answer="left alone",
    )
    yield Kind(
        name="the driver's clock jumps ahead",
        strike=strikes.set_clock_forward,
        weight=6,
        answer="nothing; the time budget stays",
    )
    yield Kind(
        name="the driver's clock jumps back",
        strike=strikes.set_clock_back,
        weight=6,
        answer="nothing; the time budget stays",
    )


KINDS: Sequence[Kind] = tuple(_rows())
