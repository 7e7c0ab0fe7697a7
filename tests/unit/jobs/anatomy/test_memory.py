"""The arithmetic of an anatomy on a step small enough to follow by hand: every byte and second has a name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.anatomy import rules_of_thumb
from jobs.anatomy.memory.ledger import Seen, ledger, saved
from jobs.anatomy.memory.live_tensors import Resident
from jobs.anatomy.memory.timeline import SAMPLES, Known, account
from jobs.anatomy.time.efficiency import efficiency, flop
from jobs.anatomy.time.operations import group_of, operations
from jobs.anatomy.time.peak_flops import peak
from jobs.anatomy.time.phases import phase_reader, phases
from jobs.anatomy.trace import Call, Change, Trace, Work
from jobs.anatomy_record import Entry, anatomy_from_json
from jobs.spec import to_json
from tests.support.records import make_anatomy

WEIGHTS, STATES, INPUT, COPY, SAVED, GRADIENT, PASSING, AGAIN, CODE = range(1, 10)
PHASES = (
    ("data", 0, 10),
    ("forward", 10, 30),
    ("backward", 30, 60),
    ("optimizer", 60, 70),
    ("upkeep", 70, 80),
)


def change(at: int, address: int, nbytes: int, operator: str = "aten::mm", **more: Any) -> Change:
    given = {"reserved": 2000, "copies": 0, "recomputed": False, **more}
    return Change(at=at, address=address, nbytes=nbytes, operator=operator, **given)


STEP = Trace(
    phases=PHASES,
    changes=(
        change(1, INPUT, 8),
        change(12, COPY, 50, copies=WEIGHTS),
        change(14, SAVED, 300, "aten::addmm"),
        change(15, CODE, 20, ""),
        change(16, PASSING, 40),
        change(17, PASSING, -40),
        change(31, AGAIN, 60, recomputed=True),
        change(35, GRADIENT, 100),
        change(40, AGAIN, -60),
        change(45, SAVED, -300),
        change(46, CODE, -20),
        change(55, COPY, -50),
        change(71, GRADIENT, -100),
        change(72, INPUT, -8),
        change(73, 99, -7),
    ),
)
KNOWN = Known(
    before={WEIGHTS: 100, STATES: 200},
    names={WEIGHTS: "weights", STATES: "optimizer states"},
    gradients={GRADIENT},
    inputs={INPUT},
    parameters={WEIGHTS},
)


def test_every_byte_at_the_peak_has_a_name() -> None:
    memory = account(STEP, KNOWN)
    assert memory.at_peak == {
        "weights": 100,
        "optimizer states": 200,
        "other": 7,
        "inputs": 8,
        "autocast copies of weights": 50,
        "saved activations": 320,
        "recomputed activations": 60,
        "gradients": 100,
    }
    assert memory.peak == sum(memory.at_peak.values())
    assert memory.most["temporary buffers"] == 40
    assert {entry.name: entry.value for entry in saved(memory)} == {
        "addmm": 300.0,
        "compiled code": 20.0,
    }


def test_what_began_in_mid_step_is_known_by_its_address() -> None:
    late = replace(STEP, changes=STEP.changes[9:])
    memory = account(late, replace(KNOWN, before={**KNOWN.before, GRADIENT: 100, INPUT: 8}))
    assert memory.at_peak["gradients"] == 100
    assert memory.at_peak["inputs"] == 8


def test_a_timeline_keeps_each_stretchs_highest_moment() -> None:
    memory = account(STEP, KNOWN)
    line = memory.timeline
    totals = [sum(moment) for moment in zip(*line.held.values(), strict=True)]
    assert max(totals) == memory.peak
    assert len(line.seconds) == len(totals) <= SAMPLES
    assert [name for name, _ in line.phases] == [name for name, _, _ in PHASES]


def test_the_ledger_adds_up_to_what_nvml_saw_whatever_it_saw() -> None:
    memory = account(STEP, KNOWN)
    paged = Resident(address=77, nbytes=30, device="managed", name="optimizer states")
    for outside, expected in ((530, 30), (500, 0), (1000, 30)):
        entries = list(
            ledger(memory, Seen(device_used=3000, context=500, outside=outside), [paged])
        )
        found = {entry.name: entry.value for entry in entries}
        assert sum(found.values()) == 3000
        assert found["cached by the allocator"] == 2000 - memory.peak
        assert found["residual"] == 3000 - 2000 - outside
        assert found.get("paged optimizer states", 0) == expected
    assert sum(entry.value for entry in ledger(memory, None, [])) == memory.peak


def work(begin: int, end: int, kernel: str, operator: str = "", launched: int = 15) -> Work:
    return Work(
        begin=begin,
        end=end,
        seconds=(end - begin) / 1e9,
        kernel=kernel,
        operator=operator,
        launched=launched,
    )


BUSY = Trace(
    phases=PHASES,
    work=(
        work(5, 7, "Memcpy HtoD (Pageable -> Device)", "aten::copy_", 5),
        work(20, 30, "nvjet_hsh_128x256", "aten::mm"),
        work(25, 35, "reduce_kernel", "aten::native_layer_norm"),
        work(40, 44, "elementwise_kernel", "aten::gelu_backward", 40),
        work(62, 66, "multi_tensor_apply_kernel", "aten::_fused_adamw_", 62),
    ),
)


def seconds(entries: Any, part: str) -> dict[str, float]:
    return {
        entry.name: round(entry.value * 1e9)
        for entry in entries
        if entry.part == part and entry.unit == "s"
    }


def test_operations_add_up_to_the_step_where_kernels_do_not_overlap() -> None:
    found = seconds(operations(BUSY, phase_reader(BUSY), 80e-9), "operations")
    assert found == {
        "tensor contractions": 10,
        "statistical normalizations": 10,
        "element-wise operators": 4,
        "data movement": 2,
        "optimizer and clipping": 4,
        "idle": 80 - 25,
    }


def test_of_many_micro_batches_each_that_was_traced_stands_for_several() -> None:
    many = replace(
        BUSY,
        times=3.0,
        calls=(Call(operator="aten::mm", shapes=((2, 3), (3, 4)), recomputed=False),),
    )
    found = seconds(operations(many, phase_reader(many), 200e-9), "operations")
    assert (found["tensor contractions"], found["optimizer and clipping"]) == (30, 4)
    assert found["idle"] == 200 - 2 - 3 * (15 + 4) - 4, "all micro-batches' data were fetched"
    (model, *_) = efficiency(many, device="", precision="bf16", step_seconds=1.0)
    assert model.value == 3 * 2 * 2 * 3 * 4


def test_a_steps_parts_are_its_phases_and_what_no_kernel_filled_was_idle() -> None:
    timed = {"data": 10e-9, "forward": 30e-9, "backward": 30e-9, "optimizer": 10e-9, "upkeep": 5e-9}
    entries = list(phases(BUSY, timed, step_seconds=85e-9, host_updates=False, on_gpu=True))
    assert seconds(entries, "phases") == {name: round(spent * 1e9) for name, spent in timed.items()}
    assert seconds(entries, "step") == {
        "host-to-device": 2,
        "data wait": 8,
        "forward": 20,
        "backward": 4,
        "optimizer": 4,
        "launch-bound idle": 10 + 26 + 6,
        "logging and synchronisation": 5,
    }
    (ratio,) = (entry.value for entry in entries if entry.name == "backward / forward")
    assert ratio == pytest.approx(4 / 20)
    offloaded = seconds(
        phases(BUSY, timed, step_seconds=85e-9, host_updates=True, on_gpu=True), "step"
    )
    assert offloaded["optimizer"] == 10


@pytest.mark.parametrize(("counted", "idle"), [(85e-9, 42), (58e-9, 21), (30e-9, 0)])
def test_the_counted_step_says_how_long_was_idle_when_the_timed_one_was_slower(
    counted: float, idle: int
) -> None:
    timed = {"data": 10e-9, "forward": 30e-9, "backward": 30e-9, "optimizer": 10e-9, "upkeep": 5e-9}
    found = seconds(
        phases(BUSY, timed, step_seconds=counted, host_updates=False, on_gpu=True), "step"
    )
    assert found.get("launch-bound idle", 0) == pytest.approx(idle, abs=2)
    assert sum(found.values()) == pytest.approx(max(counted * 1e9, 2 + 20 + 4 + 4), abs=2)
    assert (found["forward"], found["backward"], found["host-to-device"]) == (20, 4, 2)


@pytest.mark.parametrize(
    ("kernel", "operator", "phase", "group"),
    [
        ("ncclDevKernel_AllReduce", "", "backward", "communication"),
        ("Memset (Device)", "aten::zero_", "optimizer", "data movement"),
        ("vectorized_elementwise_kernel", "aten::copy_", "forward", "data movement"),
        (
            "fmha_cutlassF_bf16",
            "aten::_efficient_attention_forward",
            "forward",
            "tensor contractions",
        ),
        ("triton_red_fused_native_layer_norm_0", "", "forward", "statistical normalizations"),
        ("triton_poi_fused_gelu_1", "", "backward", "element-wise operators"),
        ("", "aten::_softmax", "forward", "statistical normalizations"),
        ("", "aten::mul", "clipping", "optimizer and clipping"),
        ("", "aten::mul", "forward", "element-wise operators"),
    ],
)
def test_each_kernel_is_of_one_group(kernel: str, operator: str, phase: str, group: str) -> None:
    assert group_of(work(0, 1, kernel, operator), phase) == group


@pytest.mark.parametrize(
    ("operator", "shapes", "expected"),
    [
        ("mm", ((2, 3), (3, 5)), 2 * 2 * 3 * 5),
        ("addmm", ((5,), (2, 3), (3, 5)), 2 * 2 * 3 * 5),
        ("bmm", ((7, 2, 3), (7, 3, 5)), 2 * 7 * 2 * 3 * 5),
        ("_scaled_dot_product_flash_attention", ((1, 4, 16, 8),) * 3, 2 * 2 * 4 * 16 * 16 * 8),
        (
            "_scaled_dot_product_flash_attention_backward",
            ((1, 4, 16, 8),) * 4,
            2 * 2 * 2 * 4 * 16 * 16 * 8,
        ),
        (
            "convolution_backward",
            ((1, 6, 4, 4), (1, 3, 8, 8), (6, 3, 2, 2)),
            3 * 2 * 6 * 4 * 4 * 3 * 2 * 2,
        ),
    ],
)
def test_floating_point_operations_follow_from_shapes(
    operator: str, shapes: Any, expected: int
) -> None:
    assert flop(Call(operator=f"aten::{operator}", shapes=shapes, recomputed=False)) == expected


def test_mfu_is_of_the_model_alone_and_of_a_known_device_only() -> None:
    call = Call(operator="aten::mm", shapes=((100, 100), (100, 100)), recomputed=False)
    trace = Trace(calls=(call, replace(call, recomputed=True)))
    found = {
        e.name: e.value
        for e in efficiency(trace, device="NVIDIA H200", precision="bf16", step_seconds=1e-6)
    }
    assert found["model flop"] == found["recomputed flop"] == 2e6
    assert found["MFU"] == pytest.approx(2e12 / 989.4e12)
    unknown = efficiency(trace, device="NVIDIA B9999", precision="bf16", step_seconds=1e-6)
    assert "MFU" not in {entry.name for entry in unknown}
    assert peak("NVIDIA H100 PCIe", "bf16") != peak("NVIDIA H100 80GB HBM3", "bf16")


ROW = {
    "parameters_total": 1000,
    "parameters_trainable": 1000,
    "parameter_dtypes": "float32",
    "autocast": "bf16",
} | {
    "optimizer_class": "torch.AdamW",
    "peak_allocated_bytes": 20_000,
}
MOST = {
    "weights": 4000,
    "autocast copies of weights": 2000,
    "gradients": 4000,
    "optimizer states": 8000,
}


def judged(most: dict[str, int], row: dict[str, Any]) -> dict[str, Entry]:
    return {entry.name: entry for entry in rules_of_thumb.rules(most, row)}


def test_rules_are_judged_where_they_apply() -> None:
    whole = judged(MOST, ROW)
    assert {name for name, entry in whole.items() if entry.held} == {
        "weights, fp32",
        "weights, mixed precision",
        "gradients",
        "optimizer states, AdamW",
        "all but activations, mixed precision with AdamW",
    }
    adapters = judged(
        {"weights": 3800, "LoRA adapters": 200, **MOST}, {**ROW, "parameters_trainable": 50}
    )
    assert not adapters["optimizer states, AdamW"].held
    assert "all but activations, mixed precision with AdamW" not in adapters
    assert judged(MOST, {**ROW, "zero_stage": 2}) == {}
    assert "optimizer states, AdamW" not in judged(
        MOST, {**ROW, "optimizer_class": "transformers.Adafactor"}
    )


def test_shares_ratios_and_peaks_are_judged_too() -> None:
    shares = {
        entry.name.partition(",")[0]: entry
        for entry in rules_of_thumb.shares({"tensor contractions": 2.0, "idle": 9.0})
    }
    assert shares["tensor contractions"].value == 1.0
    assert not any(entry.held for entry in shares.values())
    assert [rules_of_thumb.ratio(value).held for value in (1.9, 3.0)] == [True, False]
    (same,) = rules_of_thumb.same_peak(20_001, ROW)
    assert same.held
    assert not next(rules_of_thumb.same_peak(19_000, ROW)).held


def test_an_anatomy_travels_as_json() -> None:
    assert anatomy_from_json(to_json(make_anatomy())) == make_anatomy()
