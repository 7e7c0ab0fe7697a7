"""Accumulated trainings have the loss of trainings without accumulation, for every model."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from jobs.flags import Flag, FlagKind
from jobs.gradient_check import scaling_flag
from jobs.loops.accumulated_loss import LossScale, is_used, is_used_by, watched
from jobs.spec import TrialSpec
from tests.conftest import build_tiny_spec
from tests.support.one_trial import measured
from tests.support.tiny_decoders import MODEL, RAGGED

Loss = Callable[[torch.Tensor, Any], torch.Tensor]


def divide(total: torch.Tensor, count: Any) -> torch.Tensor:
    return total / count


def divide_after_a_copy(total: torch.Tensor, count: Any) -> torch.Tensor:
    return total / count.to(total.device).float()


def divide_by_a_number(total: torch.Tensor, count: Any) -> torch.Tensor:
    return total / count.item()


def ignore(total: torch.Tensor, count: Any) -> torch.Tensor:
    return total.mean()


def only_ask(total: torch.Tensor, count: Any) -> torch.Tensor:
    """Reads attributes and compares; the loss does not depend on the count."""
    if count is not None and count.dim() == 0 and count.device == total.device and count > 0:
        return total.mean()
    return total


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (divide, True),
        (divide_after_a_copy, True),
        (divide_by_a_number, True),
        (ignore, False),
        (only_ask, False),
    ],
)
def test_is_used_after_a_forward_pass(loss, expected):
    plain = torch.tensor(8.0)
    count = watched(plain)
    result = loss(torch.tensor(4.0, requires_grad=True), count)
    assert is_used(count) is expected
    assert type(result) is torch.Tensor
    assert count.data_ptr() == plain.data_ptr()


class Model(torch.nn.Module):
    """A linear layer whose loss is one of the cases above."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.dropout = torch.nn.Dropout()
        self._loss = loss

    def forward(self, inputs: torch.Tensor, num_items_in_batch: Any) -> torch.Tensor:
        return self._loss(self.dropout(self.layer(inputs)).sum(), num_items_in_batch)


def loss_of(model: Any, inputs: Mapping[str, Any], count: Any) -> Any:
    return model(**inputs, num_items_in_batch=count)


@pytest.mark.parametrize(("loss", "expected"), [(divide_after_a_copy, True), (ignore, False)])
def test_is_used_by_draws_no_number_and_keeps_weights(loss, expected):
    model = Model(loss)
    weights = model.layer.weight.clone()
    state = torch.get_rng_state()
    inputs = {"inputs": torch.ones(2, 4)}
    assert is_used_by(loss_of, model, inputs, torch.tensor(8.0)) is expected
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model.layer.weight, weights)


def test_is_used_by_runs_compiled_parts_uncompiled():
    def compiler(graph: Any, inputs: Any) -> Any:
        raise AssertionError("compiled code would read the memory of fake tensors")

    model = Model(divide)
    model.layer.compile(backend=compiler)
    inputs = {"inputs": torch.ones(2, 4)}
    count = torch.tensor(8.0)
    assert is_used_by(
        lambda own, given, n: own(**given, num_items_in_batch=n), model, inputs, count
    )


def test_is_used_by_keeps_what_fsdp2_shards(tmp_path):
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        model: Any = Model(divide).eval()
        with torch.no_grad():
            expected = model(torch.ones(2, 4), num_items_in_batch=8)
        model.layer.compile(backend="eager")
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        inputs = {"inputs": torch.ones(2, 4)}
        count = torch.tensor(8.0)
        assert is_used_by(
            lambda own, given, n: own(**given, num_items_in_batch=n), model, inputs, count
        )
        loss = model(**inputs, num_items_in_batch=count).detach()
        torch.testing.assert_close(loss, expected)
    finally:
        torch.distributed.destroy_process_group()


def accumulated(**choices: Any) -> TrialSpec:
    return build_tiny_spec({"micro_batch": 2, "accumulation": 4, **choices}, inspect=False)


@pytest.mark.parametrize("compiler", ["none", "aot_eager"])
def test_run_corrects_a_model_that_ignores_the_count(tmp_path, compiler):
    corrected = measured(accumulated(compile=compiler), tmp_path)
    plain = measured(build_tiny_spec({"micro_batch": 8}, inspect=False), tmp_path)
    assert corrected.measurements["accumulation_loss_scaling"] == "corrected"
    assert corrected.measurements["accumulation_loss_ratio"] == pytest.approx(1.0, rel=1e-5)
    # Two classes: the loss of random weights is about ln 2, not four times that.
    assert corrected.steps["loss"] == pytest.approx(plain.steps["loss"], rel=0.1)
    assert corrected.flags == ()
    columns = {"accumulation_loss_scaling", "accumulation_loss_ratio"}
    assert not columns & plain.measurements.keys()


@pytest.mark.parametrize("compiler", ["none", "aot_eager"])
def test_run_leaves_a_model_alone_that_divides(tmp_path, compiler):
    record = measured(replace(accumulated(compile=compiler), model=MODEL), tmp_path)
    assert record.measurements["accumulation_loss_scaling"] == "native"
    assert record.measurements["accumulation_loss_ratio"] == pytest.approx(1.0, rel=1e-5)


def test_accelerates_loop_weighs_micro_batches_by_their_labels(tmp_path):
    losses = []
    for micro_batch, accumulation in ((8, 1), (2, 4), (1, 8)):
        spec = accumulated(loop="accelerate", micro_batch=micro_batch, accumulation=accumulation)
        spec = replace(spec, model=MODEL, data=replace(spec.data, synthetic=RAGGED))
        record = measured(spec, tmp_path)
        losses.append(record.steps["loss"])
    assert record.measurements["accumulation_loss_scaling"] == "divided"
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)


def test_run_flags_accumulation_of_the_users_own_arguments(tmp_path, monkeypatch):
    """The check knows nothing of the correction: without it, it finds the mistake."""
    monkeypatch.setattr(LossScale, "_decide", lambda self, *, used: setattr(self, "scaling", "?"))
    spec = build_tiny_spec(inspect=False)
    given = {**spec.settings.training_arguments, "gradient_accumulation_steps": 4}
    spec = replace(spec, settings=replace(spec.settings, training_arguments=given))
    record = measured(spec, tmp_path)
    ratio = record.measurements["accumulation_loss_ratio"]
    assert ratio == pytest.approx(4.0, rel=1e-5)
    assert record.flags == (Flag(FlagKind.LOSS_TIMES_ACCUMULATION, ratio),)


def test_loss_scale_without_a_count_says_divided():
    trainer = SimpleNamespace(args=SimpleNamespace(gradient_accumulation_steps=2, world_size=1))
    scale = LossScale(trainer)
    scale.compute(lambda *args, **kwargs: 1.0, None, {})
    assert scale.scaling == "divided"


@pytest.mark.parametrize("ratio", [1.0, 1.004, 0.99, None, math.nan])
def test_scaling_flag_of_a_right_or_unchecked_loss_is_none(ratio):
    assert scaling_flag(ratio, 4) is None


@pytest.mark.parametrize("ratio", [0.25, 0.0, 1.5, 3.0])
def test_scaling_flag_of_another_factor_is_a_mismatch(ratio):
    assert scaling_flag(ratio, 4) == Flag(FlagKind.LOSS_MISMATCH, ratio)
