"""A run as one dataset: its labels, its losses, and the layers of its memory."""

import math
from typing import Any

import pytest

from orchestrator.analysis.dataset import break_even_steps, dataset_of_records, load_dataset
from orchestrator.analysis.profiles import memory_layers
from orchestrator.storage.run_metadata import RunMetadata
from tests.support.records import make_record, write_run


def test_dataset_labels_name_the_axes_in_play():
    record = make_record(micro_batch=8, precision="bf16", optimizer="sgd")
    other = make_record(micro_batch=16, precision="bf16", optimizer="sgd")
    by_rows = dataset_of_records([record, other], RunMetadata())
    assert by_rows.label(record.spec.choices) == "batch 8"
    by_config = dataset_of_records([record, other], RunMetadata(axes=("micro_batch", "precision")))
    assert by_config.label(record.spec.choices) == "batch 8 · bf16"
    assert by_config.row_label(by_config.rows[0]) == "batch 8 · bf16"


def test_load_dataset_reads_losses_from_the_folder(tmp_path):
    record = make_record()
    dataset = load_dataset(write_run(tmp_path, [record]))
    assert dataset.losses == {record.trial_id: [3.0, 2.0, 1.0]}
    assert dataset.name == "synthetic"


def test_memory_layers_add_up_to_the_devices_peak():
    row = {
        "model_allocated_bytes": 100,
        "optimizer_state_bytes": 200,
        "peak_allocated_bytes": 450,
        "peak_reserved_bytes": 500,
        "device_peak_bytes": 620,
    }
    layers = memory_layers(row)
    assert list(layers.values()) == [100, 200, 150, 50, 120]
    offloaded = memory_layers({**row, "offload_optimizer_device": "cpu"})
    assert list(offloaded.values()) == [100, 0, 350, 50, 120]
    assert memory_layers({**row, "peak_allocated_bytes": 250}) is None
    assert memory_layers({}) is None


AXES = {"compile": "compile", "precision": "precision"}


def row(
    trial_id: str, compile: str, first: float | None, median: float | None, **other: Any
) -> dict[str, Any]:
    """An ok row of one environment in bf16."""
    figures = {"first_step_seconds": first, "step_seconds_median": median}
    return {
        "trial_id": trial_id,
        "outcome": "ok",
        "environment_id": "one",
        "precision": "bf16",
        "compile": compile,
        **figures,
    } | other


@pytest.mark.parametrize(
    ("eager", "compiled", "steps"),
    [
        # A minute more in the first step, and a tenth of a second less in each later one.
        ((1.0, 0.3), (61.0, 0.2), pytest.approx(600.0)),
        ((1.0, 0.2), (61.0, 0.2), math.inf),
        ((5.0, 0.3), (4.0, 0.2), 0.0),
    ],
)
def test_compiling_has_paid_when_later_steps_have_saved_what_the_first_took_longer(
    eager, compiled, steps
):
    rows = [row("a", "none", *eager), row("b", "inductor", *compiled)]
    assert break_even_steps(rows, AXES) == {"b": steps}
    # A sweep without the axis says nothing.
    assert break_even_steps(rows, {"precision": "precision"}) == {}


@pytest.mark.parametrize(
    "other",
    [
        {"precision": "fp32"},
        {"environment_id": "two"},
        {"outcome": "failed"},
        {"step_seconds_median": None},
    ],
)
def test_without_an_eager_trial_otherwise_equal_nothing_is_said(other):
    rows = [row("a", "none", 1.0, 0.3, **other), row("b", "inductor", 61.0, 0.2)]
    assert break_even_steps(rows, AXES) == {}


@pytest.mark.parametrize("column", ["compile_cache_hits", "inductor_cache_hits"])
def test_code_from_the_cache_says_nothing_about_the_price(column):
    eager = row("a", "none", 1.0, 0.3)
    cold = row("b", "inductor", 61.0, 0.2, **{column: 0})
    warm = row("c", "inductor", 5.0, 0.2, **{column: 1})
    slow = row("d", "inductor", 5.0, 0.4, **{column: 1})
    steps = break_even_steps([eager, cold, warm, slow], AXES)
    assert steps == {"b": pytest.approx(600.0), "d": math.inf}
