"""A profiled step's time by operation and phase, its floating-point operations, and its modules.

Backward work belongs to the module that ran forward.
"""

from collections import Counter, defaultdict
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from jobs.anatomy.time.operations import efficiency, flop, group_of, operations, peak
from jobs.anatomy.time.phases import OUTSIDE, class_name, module_ranges, modules, phases
from jobs.anatomy.trace import COMPILED, Call, Trace, Work
from jobs.anatomy.trace_reader import PHASE, read
from jobs.loops.accumulated_loss import is_compiled
from tests.support.commands import ROOT
from tests.support.traces import BUSY_STEP, PHASES, kernel, nanoseconds

KERNELS = (ROOT / "tests/golden/kernels.txt").read_text().splitlines()[1:]


def test_operations_list_each_groups_time_and_the_idle_rest():
    assert nanoseconds(operations(BUSY_STEP, 80e-9), "operations") == {
        "tensor contractions": 10,
        "statistical normalizations": 10,
        "element-wise operators": 4,
        "data movement": 2,
        "optimizer and clipping": 4,
        "idle": 80 - 25,
    }


def test_operations_weight_the_passes_by_their_repetitions():
    trace = replace(BUSY_STEP, repetitions=3.0)
    found = nanoseconds(operations(trace, 200e-9), "operations")
    assert (found["tensor contractions"], found["optimizer and clipping"]) == (30, 4)
    assert found["idle"] == 200 - 2 - 3 * (15 + 4) - 4, "data of all micro-batches were fetched"


@pytest.mark.parametrize("line", KERNELS)
def test_group_of_a_kernel(line):
    name, operator, phase, group = (part.strip() for part in line.split("|"))
    assert group_of(name, operator, phase) == group


TIMED = {"data": 10e-9, "forward": 30e-9, "backward": 30e-9, "optimizer": 10e-9, "upkeep": 5e-9}
"""Phase -> seconds: 85 ns, of which the kernels of ``BUSY_STEP`` fill 30."""


def test_phases_split_a_step_into_busy_and_idle_time():
    entries = list(phases(BUSY_STEP, TIMED, step_seconds=85e-9, host_updates=False, on_gpu=True))
    assert nanoseconds(entries, "phases") == {name: round(s * 1e9) for name, s in TIMED.items()}
    assert nanoseconds(entries, "step") == {
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


def test_phases_with_updates_on_the_host_count_their_idle_time_as_work():
    entries = phases(BUSY_STEP, TIMED, step_seconds=85e-9, host_updates=True, on_gpu=True)
    assert nanoseconds(entries, "step")["optimizer"] == 10


def test_phases_on_a_cpu_have_no_idle_time():
    entries = phases(BUSY_STEP, TIMED, step_seconds=85e-9, host_updates=False, on_gpu=False)
    step = nanoseconds(entries, "step")
    assert "launch-bound idle" not in step
    assert sum(step.values()) == 85


@pytest.mark.parametrize(("counted", "idle"), [(85e-9, 42), (58e-9, 21), (30e-9, 0)])
def test_phases_scale_the_idle_time_to_the_counted_step(counted, idle):
    entries = phases(BUSY_STEP, TIMED, step_seconds=counted, host_updates=False, on_gpu=True)
    step = nanoseconds(entries, "step")
    assert step.get("launch-bound idle", 0) == pytest.approx(idle, abs=2)
    assert sum(step.values()) == pytest.approx(max(counted * 1e9, 2 + 20 + 4 + 4), abs=2)
    assert (step["forward"], step["backward"], step["host-to-device"]) == (20, 4, 2)


@pytest.mark.parametrize(
    ("operator", "shapes", "expected"),
    [
        ("mm", ((2, 3), (3, 5)), 2 * 2 * 3 * 5),
        ("addmm", ((5,), (2, 3), (3, 5)), 2 * 2 * 3 * 5),
        ("bmm", ((7, 2, 3), (7, 3, 5)), 2 * 7 * 2 * 3 * 5),
        ("_scaled_dot_product_flash_attention", ((1, 4, 16, 8),) * 3, 4 * 4 * 16 * 16 * 8),
        ("_scaled_dot_product_flash_attention_backward", ((1, 4, 16, 8),) * 4, 8 * 4 * 16 * 16 * 8),
        ("convolution_backward", ((1, 6, 4, 4), (1, 3, 8, 8), (6, 3, 2, 2)), 3 * 2 * 96 * 12),
    ],
)
def test_flop_follows_from_shapes(operator, shapes, expected):
    assert flop(Call(operator=f"aten::{operator}", shapes=shapes, recomputed=False)) == expected


def test_efficiency_counts_all_micro_batches_and_leaves_recomputation_out_of_the_mfu():
    product = Call(operator="aten::mm", shapes=((100, 100), (100, 100)), recomputed=False)
    trace = Trace(calls=(product, replace(product, recomputed=True)), repetitions=3.0)
    entries = efficiency(trace, device="NVIDIA H200", precision="bf16", step_seconds=3e-6)
    values = {entry.name: entry.value for entry in entries}
    assert values["model flop"] == values["recomputed flop"] == 3 * 2e6
    assert values["MFU"] == pytest.approx(2e12 / 989.4e12)


def test_peak_is_of_the_model_by_its_words():
    assert peak("NVIDIA H100 PCIe", "bf16") != peak("NVIDIA H100 80GB HBM3", "bf16")
    assert peak("NVIDIA B9999", "bf16") is None


class Wave(torch.nn.Module):
    """The only module to call sine, whose backward pass calls cosine."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)


class Model(torch.nn.Module):
    """Products of its own, a normalization, and another module."""

    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.products = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        self.norm = torch.nn.LayerNorm(8)
        self.wave = Wave()
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.products(x))
        return checkpoint(self.wave, x, use_reentrant=False) if self.checkpointed else self.wave(x)


def traced(model: torch.nn.Module, ranges: AbstractContextManager[None]) -> Trace:
    """Two micro-batches on the CPU, whose loss is computed outside the model."""
    profiler = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, profile_memory=True
    )
    with profiler as profile, ranges:
        for _ in range(2):
            with torch.autograd.profiler.record_function(PHASE + "forward"):
                loss = model(torch.randn(4, 8, requires_grad=True)).exp().sum()
            with torch.autograd.profiler.record_function(PHASE + "backward"):
                loss.backward()
    return read(profile, "cpu", frozenset())


def callers(trace: Trace) -> dict[str, set[str]]:
    found = defaultdict(set)
    for work in trace.work:
        found[work.operator].add(work.module)
    return found


@pytest.mark.parametrize(("checkpointed", "sines"), [(False, 2), (True, 4)])
def test_read_credits_operators_to_modules_in_both_passes(checkpointed, sines):
    model = Model(checkpointed=checkpointed)
    trace = traced(model, module_ranges(model))
    called_in = callers(trace)
    assert called_in["aten::addmm"] == {"Model"}, "torch.nn's blocks count with the outer module"
    assert called_in["aten::mm"] == {"Model"}, "the backward pass of its products"
    assert called_in["aten::native_layer_norm"] == {"LayerNorm"}
    assert called_in["aten::native_layer_norm_backward"] == {"LayerNorm"}
    assert called_in["aten::sin"] == called_in["aten::cos"] == {"Wave"}
    assert called_in["aten::exp"] == {""}
    # The ranges add no operators, and leave no hooks.
    assert Counter(work.operator for work in trace.work)["aten::sin"] == sines
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_read_credits_compiled_code_to_one_name():
    model = Model()
    compiled = torch.compile(model, backend="aot_eager")
    assert is_compiled(compiled)
    assert not is_compiled(model)
    traced(compiled, nullcontext())  # compiles
    called_in = callers(traced(compiled, nullcontext()))
    assert called_in["aten::addmm"] == called_in["aten::mm"] == called_in["aten::cos"] == {COMPILED}
    assert called_in["aten::exp"] == {""}


def work(module: str, time: int) -> Work:
    """Two nanoseconds of a kernel."""
    return replace(kernel(time, time + 2, "k", launched=time), module=module)


def test_modules_add_up_to_both_passes():
    done = [work("A", 10), work("B", 10), work("A", 30), work("", 30), work("A", 60)]
    entries = modules(Trace(work=done, phases=PHASES, repetitions=3.0))
    found = [(entry.name, round(entry.value * 1e9)) for entry in entries]
    assert found == [("A", 12), ("B", 6), (OUTSIDE, 6)]


def test_class_name_has_its_package_where_torch_has_that_name_too():
    other = type("Linear", (torch.nn.Module,), {"__module__": "peft.tuners.lora.layer"})()
    names = [class_name(module) for module in (other, torch.nn.Linear(1, 1), Wave())]
    assert names == ["peft.Linear", "Linear", "Wave"]
