"""One GPU's slot: which trials run, which are repeated, and when an unfit GPU gives them back."""

import contextlib

import pytest

from jobs.flags import Flag, FlagKind, flag_columns
from jobs.infrastructure import DISK_FULL, SLOT_UNRESPONSIVE
from jobs.isolation.slot import SlotDiedError
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.running.cluster.gpu_slot import OWN_RELEASE_SECONDS, GpuProbe, GpuSlot, crashed
from orchestrator.running.cluster.messages import Assignment, GpuProblem, UnhealthyGpu
from tests.conftest import build_tiny_spec
from tests.support.clock import Clock
from tests.support.records import ended

PLAN = [build_tiny_spec(repeat=number) for number in range(4)]


class Gpu(GpuProbe):
    """An invented GPU with its slot. Tests set what it answers."""

    def __init__(self) -> None:
        self.lost_reason = ""
        self.dead_reason = ""
        self.shared_reason = ""
        self.shared_from_run = 0
        """Other processes are there once so many trials have run."""
        self.model = ""
        self.outcome = Outcome.OK
        self.reason = ""
        self.disturbed_runs = 0
        """So many of the next trials share the GPU."""
        self.deaths = 0
        """So many of the next trials lose the slot."""
        self.death_rule = ""
        """Why it is lost, where the trial is certainly not to blame."""
        self.run_seconds = 2.0
        self.children = 0
        self.has_unequal_rows = False
        self.ran: list[TrialSpec] = []
        self.timeouts: list[float] = []
        self.closed = False

    def session(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def lost(self) -> str:
        return self.lost_reason

    def dead(self) -> str:
        return self.dead_reason

    def shared(self, waiting: int = 0) -> str:
        return self.shared_reason if len(self.ran) >= self.shared_from_run else ""

    def gpu_model(self) -> str:
        return self.model

    def run(self, spec: TrialSpec, timeout_seconds: float) -> TrialRecord:
        self.ran.append(spec)
        self.timeouts.append(timeout_seconds)
        if self.deaths:
            self.deaths -= 1
            raise SlotDiedError("the slot's parent died", self.death_rule)
        flags = []
        figures = {"new_shapes_share": 0.4} if self.has_unequal_rows else {}
        if self.disturbed_runs:
            self.disturbed_runs -= 1
            flags = [Flag(FlagKind.SHARED_PROCESSES, 1)]
        return ended(
            spec,
            self.outcome,
            reason=self.reason,
            measurements={**figures, **flag_columns(flags)},
            started_at=float(len(self.ran)),
            seconds=self.run_seconds,
        )

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


def slot_of(
    gpu: Gpu,
    *specs: TrialSpec,
    may_share: bool = False,
    gpu_model: str = "",
    release_seconds: float = 0.0,
    clock: Clock | None = None,
) -> GpuSlot:
    """The GPU's slot, with a minute to run these trials."""
    time = Clock(0.0) if clock is None else clock
    slot = GpuSlot(
        gpu, lambda cpus: gpu, release_seconds=release_seconds, clock=time, sleep=time.sleep
    )
    slot.assign(
        Assignment(
            specs=specs or (PLAN[0],), seconds_left=60.0, may_share=may_share, gpu_model=gpu_model
        )
    )
    return slot


def record_of(slot: GpuSlot) -> TrialRecord:
    result = slot.step()
    assert isinstance(result, TrialRecord)
    return result


def unfit(slot: GpuSlot) -> UnhealthyGpu:
    """The next step, which has to give the trial back."""
    result = slot.step()
    assert isinstance(result, UnhealthyGpu)
    return result


@pytest.mark.parametrize(("model", "runs"), [("NVIDIA H100", 3), ("", 2)])
def test_first_trial_on_unequal_rows_of_a_gpu_runs_twice(gpu, model, runs):
    gpu.has_unequal_rows = True
    gpu.model = model
    slot = slot_of(gpu, *PLAN[:2], gpu_model=model)
    first, second = record_of(slot), record_of(slot)
    assert len(gpu.ran) == runs
    # Both attempts took time in the slot.
    assert first.slot_seconds == pytest.approx((runs - 1) * second.slot_seconds)


def test_slot_runs_its_assignment_one_trial_a_step(gpu):
    slot = slot_of(gpu, *PLAN[:2])
    assert record_of(slot).spec == PLAN[0]
    assert not slot.is_done
    assert record_of(slot).spec == PLAN[1]
    assert slot.is_done
    assert slot.step() is None
    slot.assign(Assignment(specs=(), seconds_left=60.0, may_share=False, gpu_model=""))
    assert slot.step() is None
    assert slot.is_done
    slot.close()
    assert gpu.closed


def test_trial_ends_with_the_sweeps_time_budget(gpu):
    clock = Clock(0.0)
    slot = slot_of(gpu, *PLAN[:3], clock=clock)
    for now in (0.0, 50.0, 100.0):
        clock.now = now
        record_of(slot)
    assert PLAN[0].measure.timeout_seconds > 60.0
    assert gpu.timeouts == [60.0, 10.0, 1.0], "one that has started gets a second at least"


@pytest.mark.parametrize(
    ("problem", "recovers", "outcome", "reason"),
    [
        (GpuProblem.LOST, True, Outcome.OK, ""),
        (GpuProblem.SHARED, True, Outcome.OK, ""),
        (GpuProblem.DEAD, False, Outcome.FAILED, "AcceleratorError: CUDA error: unknown error"),
        (GpuProblem.DEAD, False, Outcome.TIMED_OUT, ""),
    ],
)
def test_unfit_gpu_gives_its_trial_back_and_is_watched(problem, recovers, outcome, reason, gpu):
    gpu.outcome, gpu.reason = outcome, reason
    slot = slot_of(gpu, gpu_model="H200")
    setattr(gpu, f"{problem.value}_reason", "Xid 79")
    found = unfit(slot)
    assert (found.problem, found.reason, found.planned_model) == (problem, "Xid 79", "H200")
    assert not slot.is_done
    assert unfit(slot).reason == "Xid 79"
    setattr(gpu, f"{problem.value}_reason", "")
    assert (unfit(slot).reason == "") is recovers
    assert slot.is_done is recovers


@pytest.mark.parametrize(
    ("outcome", "reason", "dead"),
    [
        (Outcome.OUT_OF_MEMORY, "CUDA out of memory", "not asked"),
        (Outcome.FAILED, "ValueError: no", "not asked"),
        (Outcome.FAILED, "CUDA error: device-side assert triggered", ""),
        (Outcome.CRASHED, "killed by SIGSEGV", ""),
    ],
)
def test_trial_that_fails_by_itself_has_its_record(outcome, reason, dead, gpu):
    gpu.outcome, gpu.reason, gpu.dead_reason = outcome, reason, dead
    assert record_of(slot_of(gpu)).outcome is outcome


@pytest.mark.parametrize("may_share", [False, True])
@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.OUT_OF_MEMORY, Outcome.FAILED])
@pytest.mark.parametrize(
    ("disturbed_runs", "seconds", "runs", "is_flagged"),
    [(1, 2.0, 2, False), (2, 2.0, 2, True), (1, 90.0, 1, True)],
    ids=["leaves", "stays", "no time to repeat"],
)
def test_disturbed_trial_is_repeated_once(
    disturbed_runs, seconds, runs, is_flagged, outcome, may_share, gpu
):
    gpu.outcome = outcome
    gpu.disturbed_runs, gpu.run_seconds = disturbed_runs, seconds
    record = record_of(slot_of(gpu, may_share=may_share))
    assert (len(gpu.ran), bool(record.flags)) == (runs, is_flagged)
    assert record.outcome is outcome
    assert (record.started_at, record.slot_seconds) == (1.0, runs * seconds)


def test_process_that_stays_is_not_waited_out_for_every_trial(gpu):
    slot = slot_of(gpu, *PLAN, may_share=True)
    runs = []
    for disturbed_runs in (2, 1, 0, 1):
        gpu.disturbed_runs = disturbed_runs
        record_of(slot)
        runs.append(len(gpu.ran))
    assert runs == [2, 3, 4, 6]


@pytest.mark.parametrize("may_share", [False, True])
def test_disturbed_trial_moves_unless_it_may_share(may_share, gpu):
    gpu.shared_reason, gpu.shared_from_run = "1 process", 1
    gpu.disturbed_runs = 1
    result = slot_of(gpu, may_share=may_share).step()
    assert isinstance(result, TrialRecord if may_share else UnhealthyGpu)
    assert len(gpu.ran) == 1


def test_process_that_may_leave_is_waited_for_once(gpu):
    """The GPU has no better one. The process comes during the first trial and stays."""
    gpu.shared_reason, gpu.shared_from_run = "1 process", 1
    gpu.disturbed_runs = 2
    clock = Clock(0.0)
    slot = slot_of(gpu, *PLAN[:2], may_share=True, release_seconds=10.0, clock=clock)
    for runs in (1, 2):
        record_of(slot)
        assert len(gpu.ran) == runs
        assert clock.now == pytest.approx(10.0, abs=0.1)


@pytest.mark.parametrize("ends", [True, False])
def test_own_processes_are_waited_for_up_to_a_limit(ends, gpu):
    """A killed trial's memory is not another user's."""
    gpu.shared_reason = "20 GiB"
    gpu.children = 2
    clock = Clock(0.0)
    slot = slot_of(gpu, *PLAN[:2], release_seconds=1.0, clock=clock)
    gpu.shared_from_run = 1
    record_of(slot)

    def sleep(seconds: float) -> None:
        clock.now += seconds
        if ends and clock.now > 5.0:
            gpu.shared_reason = ""

    slot._sleep = sleep
    if ends:
        assert record_of(slot).spec == PLAN[1]
        assert clock.now > 5.0
    else:
        assert unfit(slot).problem is GpuProblem.SHARED
        assert clock.now < 2 * OWN_RELEASE_SECONDS


def test_gpu_of_another_model_gives_its_trial_back(gpu):
    gpu.model = "A100"
    slot = slot_of(gpu, gpu_model="H200")
    found = unfit(slot)
    assert (found.problem, found.reason) == (GpuProblem.OTHER_MODEL, "it is a A100")
    assert (found.planned_model, found.found_model) == ("H200", "A100")
    assert gpu.ran == []
    unfit(slot)
    assert not slot.is_done
    assert record_of(slot_of(gpu, gpu_model="A100")).spec == PLAN[0]


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [("", Outcome.CRASHED), (SLOT_UNRESPONSIVE, Outcome.SKIPPED), (DISK_FULL, Outcome.SKIPPED)],
)
def test_trial_that_loses_its_slot_is_begun_again_once(rule, outcome, gpu):
    gpu.death_rule = rule
    gpu.deaths = 1
    assert record_of(slot_of(gpu)).outcome is Outcome.OK
    gpu.deaths = 2
    record = record_of(slot_of(gpu))
    assert (record.outcome, record.rule) == (outcome, rule)
    assert record.reason == "the slot's parent died, 2 times"
    assert record.started_at > 0
    gpu.deaths = 2
    gpu.dead_reason = "CUDA error"
    if rule == DISK_FULL:
        assert record_of(slot_of(gpu)).rule == rule, "the GPU is not to blame"
    else:
        assert unfit(slot_of(gpu)).problem is GpuProblem.DEAD


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("ray.exceptions.OutOfMemoryError: Task was killed", Outcome.HOST_OUT_OF_MEMORY),
        ("the node was low on memory. More", Outcome.HOST_OUT_OF_MEMORY),
        ("The actor died unexpectedly. More", Outcome.CRASHED),
    ],
)
def test_crashed_knows_what_ray_killed_for_memory(reason, outcome):
    record = crashed(PLAN[0], reason, {"gpu_model": "H200"})
    assert (record.outcome, record.environment) == (outcome, {"gpu_model": "H200"})
    assert record.reason == reason.partition(". ")[0]
