"""Whole trials on rows of unequal length: how they are batched, and what their peak is."""

import functools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from transformers import LlamaConfig, LlamaForCausalLM

from jobs.record import Outcome, TrialRecord
from jobs.spec import DataSpec, ModelSpec, RowLengthDistribution, SyntheticData, TrialSpec
from jobs.techniques import AXES
from jobs.trial.row_isolation import _joined, change_by_another_row, check_rows_are_separate
from tests.conftest import build_tiny_spec
from tests.support.json_rows import file_of
from tests.support.one_trial import measured
from tests.support.tiny_decoders import MODEL

LENGTHS = RowLengthDistribution(distribution="lognormal", mean=16)


def _spec(batching: str, model: ModelSpec = MODEL) -> TrialSpec:
    return replace(
        build_tiny_spec({"batching": batching, "micro_batch": 4}, steps=3),
        model=model,
        data=DataSpec(synthetic=SyntheticData(sequence_length=64, samples=80, lengths=LENGTHS)),
    )


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrialRecord]:
    """One trial of each way to batch."""
    folder = tmp_path_factory.mktemp("scratch")
    return {name: measured(_spec(name), folder) for name in AXES["batching"].variants}


def test_run_padding_free_trains_no_padding(records):
    values = {name: record.measurements for name, record in records.items()}
    assert values["pad"]["real_tokens_per_second"] < values["pad"]["tokens_per_second"]
    for batching in ("padding_free", "packed"):
        row = values[batching]
        assert row["real_tokens_per_second"] == row["tokens_per_second"]
    assert values["padding_free"]["padding_share"] == 0.0
    assert values["group_by_length"]["padding_share"] < values["pad"]["padding_share"]


def test_sample_is_a_row_or_a_block(records):
    tokens = {}
    for batching, record in records.items():
        row = record.measurements
        tokens[batching] = row["real_tokens_per_second"] / row["samples_per_second"]
    assert tokens.pop("packed") == pytest.approx(64)
    # Rows that are packed whole are counted one by one, but without those of the last, short step.
    packed_rows = tokens.pop("packed_whole_rows")
    assert [*tokens.values()] == pytest.approx([tokens["pad"]] * len(tokens))
    assert packed_rows == pytest.approx(tokens["pad"], rel=0.05)


def test_run_measures_memory_on_the_worst_batch(records):
    for batching in ("pad", "group_by_length", "padding_free"):
        row = records[batching].measurements
        assert row["peak_allocated_bytes"] > row["typical_peak_allocated_bytes"]
    # Every packed batch is the worst one.
    assert "typical_peak_allocated_bytes" not in records["packed"].measurements


@pytest.mark.parametrize("batching", ["padding_free", "packed"])
def test_run_of_a_model_that_mixes_rows_is_refused(tmp_path, batching):
    # OPT computes its positions and masks without position_ids.
    spec = _spec(batching, replace(MODEL, architecture="opt"))
    record = measured(spec, tmp_path, Outcome.UNSUPPORTED)
    assert record.rule == "rows_stay_separate"
    assert "attend to each other" in record.reason


def test_rows_that_are_only_padded_are_not_tried_in_one_sequence(tmp_path):
    # Neither does OPT keep rows of one sequence apart, nor has a classifier logits of tokens.
    opt = measured(_spec("pad_to_64", replace(MODEL, architecture="opt")), tmp_path)
    assert opt.measurements["padding_share"] > 0
    spec = spec_of(tmp_path, RAGGED, batching="pad_to_64")
    longer = {**spec.model.config, "max_position_embeddings": 64}
    measured(replace(spec, model=replace(spec.model, config=longer)), tmp_path)


SHORT, LONG = 4, 16
"""Tokens of a row. One row in fifty is long, so that a dozen random batches may have none."""
RAGGED = [LONG if row % 50 == 49 else SHORT for row in range(200)]


def spec_of(folder: Path, lengths: list[int], **choices: Any) -> TrialSpec:
    """The tiny BERT on a file of rows with so many tokens."""
    rows = [{"input_ids": [7] * count, "labels": count % 2} for count in lengths]
    spec = build_tiny_spec(choices, steps=3)
    return replace(spec, data=DataSpec(file=file_of(rows, folder)))


@pytest.mark.parametrize("choices", [{"accumulation": 2}, {"loop": "accelerate"}])
def test_run_on_ragged_rows_peaks_on_the_longest_together(tmp_path, choices):
    record = measured(spec_of(tmp_path, RAGGED, **choices), tmp_path)
    ragged = record.measurements
    longest = measured(spec_of(tmp_path, [LONG] * 100, **choices), tmp_path).measurements
    # The worst batch also holds a mask, which equally long rows do not need.
    assert ragged["peak_allocated_bytes"] == pytest.approx(
        longest["peak_allocated_bytes"], rel=0.02
    )
    assert ragged["peak_allocated_bytes"] > ragged["typical_peak_allocated_bytes"]
    assert ragged["longest_row_tokens"] == LONG
    assert ragged["mean_row_tokens"] == pytest.approx(sum(RAGGED) / len(RAGGED))
    assert 0.0 < ragged["padding_share"] < 0.2
    # The step on the longest rows does not count. Each of three counted steps was met before.
    assert (ragged["warmup_steps"], ragged["steps_counted"]) == (4, 3)
    assert len(record.steps["step_seconds"]) == len(record.steps["loss"]) == 7


def test_run_that_fails_on_the_longest_rows_says_so(tmp_path):
    lengths = [SHORT] * 5000 + [LONG + 1]  # the model has as many positions as a long row has
    record = measured(spec_of(tmp_path, lengths), tmp_path, Outcome.FAILED)
    assert record.phase == "worst_batch"
    assert record.reason.startswith("with the longest rows of the data in one batch: ")


def test_rows_are_separate_that_only_round_each_other():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**MODEL.config, use_cache=False))
    accelerator = Accelerator(cpu=True)
    trained: Any = SimpleNamespace(model=model, accelerator=accelerator)
    joined = functools.partial(_joined, "sdpa")
    for layer in model.model.layers:
        layer.mlp.register_forward_pre_hook(_rounded_by_the_batch)
    assert change_by_another_row(model, accelerator.device, joined) > 1e-3
    check_rows_are_separate(trained, _spec("padding_free"))


def _rounded_by_the_batch(_module: Any, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    """The activations in 8 steps of one size, which the largest of all rows gives."""
    step = inputs[0].abs().amax() / 8
    return ((inputs[0] / step).round() * step,)
