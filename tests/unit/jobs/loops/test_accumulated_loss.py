"""Accumulated trainings have the loss of trainings without accumulation, for every model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.flags import FlagKind
from jobs.loops.accumulated_loss import LossScale
from jobs.spec import TrialSpec
from tests.conftest import build_tiny_spec
from tests.support.one_trial import measured
from tests.support.tiny_decoders import MODEL, RAGGED


def accumulated(**choices: Any) -> TrialSpec:
    return build_tiny_spec({"micro_batch": 2, "accumulation": 4, **choices}, inspect=False)


@pytest.mark.parametrize("compiler", ["none", "aot_eager"])
def test_run_corrects_the_loss_of_a_model_that_ignores_the_count(
    tmp_path: Path, compiler: str
) -> None:
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
def test_run_leaves_a_model_alone_that_divides(tmp_path: Path, compiler: str) -> None:
    record = measured(replace(accumulated(compile=compiler), model=MODEL), tmp_path)
    assert record.measurements["accumulation_loss_scaling"] == "native"
    assert record.measurements["accumulation_loss_ratio"] == pytest.approx(1.0, rel=1e-5)


def test_run_of_accelerates_loop_says_that_it_divides(tmp_path: Path) -> None:
    record = measured(accumulated(loop="accelerate"), tmp_path)
    assert record.measurements["accumulation_loss_scaling"] == "divided"


def test_accelerates_loop_weighs_micro_batches_by_their_labels(tmp_path: Path) -> None:
    losses = []
    for micro_batch, accumulation in ((8, 1), (2, 4), (1, 8)):
        spec = accumulated(loop="accelerate", micro_batch=micro_batch, accumulation=accumulation)
        spec = replace(spec, model=MODEL, data=replace(spec.data, synthetic=RAGGED))
        losses.append(measured(spec, tmp_path).steps["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)


def test_run_flags_accumulation_of_the_users_own_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check knows nothing of the correction: without it, it finds the mistake."""
    monkeypatch.setattr(LossScale, "_decide", lambda self, *, used: setattr(self, "scaling", "?"))
    arguments = {"gradient_accumulation_steps": 4}
    spec = build_tiny_spec(inspect=False)
    given = {**spec.settings.training_arguments, **arguments}
    settings = replace(spec.settings, training_arguments=given)
    record = measured(replace(spec, settings=settings), tmp_path)
    assert record.measurements["accumulation_loss_ratio"] == pytest.approx(4.0, rel=1e-5)
    assert [flag.kind for flag in record.flags] == [FlagKind.LOSS_TIMES_ACCUMULATION]


def test_loss_scale_without_a_count_says_divided() -> None:
    trainer: Any = SimpleNamespace(args=SimpleNamespace(gradient_accumulation_steps=2))
    scale = LossScale(trainer)
    scale.compute(lambda *args, **kwargs: 1.0, None, {})
    assert scale.scaling == "divided"
