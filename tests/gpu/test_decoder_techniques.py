"""On a GPU: compiled regions, activation budgets, fused losses, Liger's kernels, the allocator."""

import json
import math
from importlib.util import find_spec

import pytest

from tests.gpu.shared import exported, gpu_marks

pytestmark = gpu_marks()

needs_liger = pytest.mark.skipif(find_spec("liger_kernel") is None, reason="needs liger-kernel")
needs_kernels = pytest.mark.skipif(find_spec("kernels") is None, reason="needs kernels")
needs_trl = pytest.mark.skipif(find_spec("trl") is None, reason="needs TRL")
needs_cce = pytest.mark.skipif(find_spec("cut_cross_entropy") is None, reason="needs cce")

ROWS = [
    "{loss: chunked}",
    "{compile: inductor_regional}",
    "{compile: inductor_regional, loss: chunked}",
    "{compile: inductor_regional_tuned, loss: chunked}",
    "{compile: inductor_regional, loss: chunked, activations: budget_0.05}",
    "{compile: inductor, loss: chunked}",
    "{compile: inductor, activations: budget_0.2}",
    "{activations: checkpoint_selective}",
    pytest.param("{activations: offload}", marks=needs_trl),
    pytest.param("{activations: checkpoint_offload_streams}", marks=needs_trl),
    pytest.param("{kernels: hub}", marks=needs_kernels),
    "{allocator: expandable_segments}",
    pytest.param("{loss: liger}", marks=needs_liger),
    pytest.param("{kernels: liger}", marks=needs_liger),
    pytest.param("{kernels: liger, loss: liger, activations: checkpoint}", marks=needs_liger),
    pytest.param("{kernels: liger, loss: chunked, compile: inductor_regional}", marks=needs_liger),
    pytest.param("{loss: cce}", marks=needs_cce),
]


@pytest.mark.parametrize("choices", ROWS)
def test_row_trains_as_the_plain_one(choices, run):
    plain = run("{}")
    record = run(choices)
    # bf16 keeps eight bits: what the loss-parity check allows between roundings of one draw.
    assert record.steps["loss"] == pytest.approx(plain.steps["loss"], rel=5e-3)


@pytest.mark.parametrize(
    ("lean", "usual"),
    [
        ("{loss: chunked}", "{}"),
        ("{compile: inductor_regional, loss: chunked}", "{compile: inductor_regional}"),
        ("{activations: checkpoint_selective}", "{}"),
        pytest.param("{activations: offload}", "{}", marks=needs_trl),
        pytest.param(
            "{activations: checkpoint_offload_streams}",
            "{activations: checkpoint}",
            marks=needs_trl,
        ),
        pytest.param("{loss: liger}", "{}", marks=needs_liger),
        pytest.param("{loss: cce}", "{}", marks=needs_cce),
        (
            "{compile: inductor_regional, loss: chunked, activations: budget_0.05}",
            "{compile: inductor_regional, loss: chunked}",
        ),
    ],
)
def test_row_takes_less_memory(lean, usual, run):
    column = "peak_allocated_bytes"
    assert run(lean).measurements[column] < run(usual).measurements[column]


def test_regional_compilation_makes_two_graphs(run):
    row = run("{compile: inductor_regional}").measurements
    assert (row["compiled_graphs"], row["compile_graph_breaks"]) == (2, 0)


def test_allocator_settings_are_in_effect(run):
    assert run("{}").measurements["allocator_settings"] == ""
    row = run("{allocator: expandable_segments}").measurements
    assert row["allocator_settings"] == "expandable_segments:True"
    row = run("{allocator: roundup_power2}").measurements
    assert row["allocator_settings"] == "roundup_power2_divisions:8"
    row = run("{allocator: max_split_128}").measurements
    assert row["allocator_settings"] == f"max_split_size:{128 * 2**20}"


@needs_liger
def test_liger_replaced_the_layers(run):
    row = run("{kernels: liger}").measurements
    # Two norms and a gated layer in each of 8 blocks, and the last norm.
    assert (row["liger_modules"], row["loss_implementation"]) == (25, "plain")


@pytest.mark.parametrize(
    "choices",
    [
        "{loss: chunked}",
        "{compile: inductor_regional, loss: chunked, activations: budget_0.05}",
        "{activations: checkpoint_selective}",
        pytest.param("{activations: offload}", marks=needs_trl),
        pytest.param("{kernels: hub}", marks=needs_kernels),
        "{allocator: expandable_segments}",
        pytest.param("{kernels: liger, loss: liger}", marks=needs_liger),
        pytest.param("{loss: cce}", marks=needs_cce),
    ],
)
def test_exported_script_trains_within_the_rows_peak(choices, run, tmp_path):
    record = run(choices)
    losses = record.steps["loss"]
    unsaved = ("--save_strategy", "no")
    output = exported(record.spec, tmp_path / "exported", *unsaved, steps=len(losses))
    figures = json.loads(output.splitlines()[-1])
    peak = record.measurements["peak_allocated_bytes"]
    print(f"exported {figures['peak_allocated_bytes']:,} B, row {peak:,} B")
    assert figures["peak_allocated_bytes"] == pytest.approx(peak, rel=0.001)
    assert figures["train_loss"] == pytest.approx(sum(losses) / len(losses), rel=0.01)


@needs_trl
def test_offloaded_activations_wait_on_the_host(run):
    kept, moved = run("{}").measurements, run("{activations: offload}").measurements
    lean = run("{activations: checkpoint_offload_streams}").measurements
    column = "offloaded_activation_bytes"
    # The inputs of 8 blocks: 8 rows of 1024 tokens, 1024 wide, in 16 bits or more.
    assert moved[column] > lean[column] >= 8 * 8 * 1024 * 1024 * 2
    assert column not in kept
    saved = kept["peak_allocated_bytes"] - moved["peak_allocated_bytes"]
    print(f"moved {moved[column]:,} B a micro-batch, saved {saved:,} B of the peak")


@needs_kernels
def test_kernels_of_the_hub_are_counted(run):
    assert run("{kernels: hub}").measurements["hub_kernel_modules"] > 0


@pytest.mark.parametrize("scheme", ["int8_int4", "int4", "fp8", "fp8_int4", "mxfp4"])
def test_qat_rounds_on_a_gpu(scheme, run):
    pytest.importorskip("torchao")
    row = run(f"{{qat: {scheme}, precision: bf16_weights}}").measurements
    assert row["fake_quantized_linears"] == 8 * 7


@pytest.mark.parametrize(
    "base", ["16bit_fp16", "bnb_4bit(dtype=float16, upcast=false)", "bnb_8bit(dtype=float16)"]
)
def test_base_in_fp16_trains_under_loss_scaling(base, run):
    pytest.importorskip("bitsandbytes")
    record = run(f"{{base: '{base}', adapter: lora_r8_all_linear, precision: fp16}}")
    assert all(math.isfinite(loss) for loss in record.steps["loss"])
    assert record.measurements["parameters_trainable"] > 0
