"""Unlike GPUs in one sweep: told apart by name and memory, searched apart, and rows that keep their place."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.node import environment, memory_cap, nvml
from jobs.record import Outcome, TrialRecord
from jobs.spec import MemoryCap, TrialSpec, spec_from_json, to_json
from orchestrator.running import gpu_screening, lifecycle
from orchestrator.running.nodes import Cluster, Node, NoSuchGpuError
from orchestrator.running.progress import Progress
from orchestrator.running.session import Session
from orchestrator.search.grid import Grid
from orchestrator.search.per_gpu_model import PerModel, for_model
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec

GIB = 2**30
PLAN = [build_tiny_spec(repeat=number) for number in range(12)]
SLOTS = {"A100": 1, "H200": 3}


def per_model() -> PerModel:
    """The plan once for each model."""
    return PerModel({model: Grid(for_model(PLAN, model)) for model in SLOTS}, SLOTS)


def on(spec: TrialSpec, model: str = "") -> TrialRecord:
    """A record of a trial as measured on a GPU model."""
    where = {"gpu_model": model or spec.gpu_model}
    figures = {"samples_per_second": 1.0, "peak_allocated_bytes": 1}
    return TrialRecord(
        spec=spec, outcome=Outcome.OK, measurements=figures, environment=where, started_at=1.0
    )


def cluster(**gpus: int) -> Cluster:
    """A node for each model."""
    nodes = (
        Node(
            node_id=model,
            address=model,
            gpus=count,
            cpus=8,
            host_bytes=8,
            environment={"gpu_model": model},
        )
        for model, count in gpus.items()
    )
    return Cluster(nodes=tuple(nodes))


def test_a_trial_for_a_model_is_another_trial_and_one_for_any_keeps_its_name() -> None:
    spec = PLAN[0]
    assert replace(spec, gpu_model="").trial_id == spec.trial_id
    named = replace(spec, gpu_model="H200")
    assert named.trial_id != spec.trial_id
    assert spec_from_json(to_json(named)) == named


def test_no_model_waits_for_another() -> None:
    search, out = per_model(), []
    while (spec := search.ask()) is not None:
        out.append(spec)
    assert Counter(spec.gpu_model for spec in out) == {"A100": 2, "H200": 4}, (
        "the slots of each, and one to come"
    )
    for _ in range(8):
        search.tell(on(next(spec for spec in out if spec.gpu_model == "H200")))
        out.remove(next(spec for spec in out if spec.gpu_model == "H200"))
        following = search.ask()
        assert following is not None
        assert following.gpu_model == "H200", "the A100 has all that it can do"
        out.append(following)
    for spec in out:
        search.tell(on(spec))
    assert not search.exhausted
    assert len(list(search.unasked())) == 12 - 2


def test_a_model_is_told_of_its_own_trials_only() -> None:
    search = per_model()
    search.tell(on(replace(PLAN[0], gpu_model="H200")))
    search.tell(on(PLAN[1]))
    assert Counter(spec.gpu_model for spec in search.unasked()) == {"A100": 12, "H200": 11}


def test_rows_keep_their_place_when_another_model_joins_and_leaves_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.locked():
        for spec in PLAN[:3]:
            folder.write(on(spec, "H200"))
        both = {spec.trial_id for model in SLOTS for spec in for_model(PLAN, model)}
        kept = lifecycle.still_wanted(
            folder, lambda spec: spec.trial_id in both, fresh=False, models=SLOTS
        )
        assert {record.spec.gpu_model for record in kept.values()} == {"H200"}
        assert len(kept) == 3
        session = Session(
            per_model(), folder, Progress(24, 4, (), stream=io.StringIO()), time_budget_seconds=None
        )
        assert (
            session.reuse(kept, [{"gpu_model": "A100"}, {"gpu_model": "H200"}], resume=False) == 3
        )
        again = {spec.trial_id for spec in PLAN}
        lifecycle.still_wanted(
            folder, lambda spec: spec.trial_id in again, fresh=False, models=[""]
        )
        assert folder.records() == {spec.trial_id: on(spec, "H200") for spec in PLAN[:3]}


def test_a_config_may_name_models() -> None:
    whole = cluster(**{"NVIDIA H200": 8, "NVIDIA A100": 4, "": 0})
    assert whole.only(()) is whole
    assert whole.slots_by_model() == {"NVIDIA A100": 4, "NVIDIA H200": 8}
    chosen = whole.only(["h200"])
    assert (chosen.slots_by_model(), chosen.pinned, chosen.gpus) == ({"": 8}, True, 8)
    with pytest.raises(NoSuchGpuError, match="no node has a GPU called B200: there is"):
        whole.only(["B200"])


def test_a_reservation_names_its_nodes_only_where_there_are_others() -> None:
    whole = cluster(one=2, other=1)
    asked = PLAN[0].needs
    assert whole.place(asked).node_ids == ()
    assert [part.place(asked).node_ids for part in whole.by_hardware()] == [("one",), ("other",)]
    assert whole.place(replace(asked, cpus=4)).bundle == {"CPU": 4.0, "GPU": 1.0, "memory": 4.0}


def calibrated(*rates: float, slowed: tuple[str, ...] = ()) -> list[dict[str, object]]:
    """Calibrations of one model, so many times as fast as they should be."""
    return [
        {
            "device": "H200",
            "slowed": slowed,
            "flops_per_second": {"bf16": rate},
            "copy_bytes_per_second": 1.0,
        }
        for rate in rates
    ]


def test_unfit_is_slower_than_the_median_or_held_down_or_dead() -> None:
    assert gpu_screening.judge(calibrated(1.0, 0.94, 1.3)) == {}
    assert gpu_screening.judge(calibrated(1.0, 0.9, 1.0)) == {
        1: "it is 10% slower than the median of its model at bf16"
    }
    told = [
        *calibrated(1.0, 1.0),
        {"failed": "CUDA error: unknown error"},
        *calibrated(1.0, slowed=("power brake",)),
    ]
    assert gpu_screening.judge(told) == {
        2: "it could not be calibrated: CUDA error: unknown error",
        3: "it is held down under load: power brake",
    }


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An invented GPU as NVML would show it; its name, uuid and memory may be changed."""
    card = SimpleNamespace(name="NVIDIA A100-SXM4-40GB", uuid="GPU-1", total=40 * GIB)
    library = SimpleNamespace(
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetName=lambda handle: card.name,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=card.total),
        nvmlSystemGetDriverVersion=lambda: "1",
    )

    @contextmanager
    def session() -> Iterator[SimpleNamespace]:
        yield library

    monkeypatch.setattr(nvml, "session", session)
    monkeypatch.setattr(nvml, "visible_uuids", lambda: [card.uuid])
    return card


def test_a_slice_is_a_model_of_its_own_by_name_or_by_memory(gpu: SimpleNamespace) -> None:
    describe = environment.describe.__wrapped__
    assert describe()["gpu_model"] == "NVIDIA A100-SXM4-40GB"
    gpu.uuid, gpu.total = "MIG-1", round(4.75 * GIB)
    assert describe()["gpu_model"] == "NVIDIA A100-SXM4-40GB MIG 4.75 GiB"
    gpu.name = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    assert describe()["gpu_model"] == gpu.name


def test_a_gpu_that_plays_a_smaller_card_is_another_model_and_capped(
    gpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert memory_cap.of(PLAN[0]) is None
    monkeypatch.setenv(environment.SIMULATED_GPU_VARIABLE, "24")
    described = environment.describe.__wrapped__()
    assert (described["gpu_model"], described["gpu_memory_bytes"]) == (
        f"{gpu.name} as 24 GiB",
        24 * GIB,
    )
    assert memory_cap.of(PLAN[0]) == MemoryCap(device_bytes=24 * GIB)
    smaller = MemoryCap(device_bytes=16 * GIB, outside_bytes=1)
    assert memory_cap.of(replace(PLAN[0], measure=replace(PLAN[0].measure, cap=smaller))) == smaller
