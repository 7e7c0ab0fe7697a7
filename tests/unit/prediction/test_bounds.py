"""Trials without what is not traced, and what that says of them."""

import pytest

from orchestrator.prediction import estimator
from orchestrator.prediction.bounds import traceable
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.model_group import ModelGroup
from orchestrator.prediction.unsupported import unpredictable
from tests.conftest import build_tiny_spec

ADAPTER = {"adapter": "lora_r8"}


@pytest.mark.parametrize(
    ("choices", "only_save", "weights"),
    [
        ({}, True, 1.0),
        ({"compile": "inductor_regional"}, True, 1.0),
        ({"compile": "inductor"}, False, 1.0),
        ({**ADAPTER, "base": "torchao_int8"}, False, 0.25),
        ({**ADAPTER, "base": "bnb_4bit", "compile": "inductor_regional"}, True, 1.0),
        ({"attention": "flex_attention"}, False, 1.0),
        ({"qat": "int8_int4"}, True, 1.0),
        ({"activations": "checkpoint_selective"}, True, 1.0),
        ({"loop": "trl_sft"}, True, 1.0),
    ],
)
def test_traceable_trial_keeps_what_can_be_traced(choices, only_save, weights):
    simpler = traceable(build_tiny_spec(choices))
    assert not unpredictable(simpler.spec)
    assert (simpler.only_save, simpler.weights) == (only_save, weights)


def test_adapter_that_is_not_traced_leaves_a_model_without_states():
    simpler = traceable(build_tiny_spec({"adapter": "loha(module_dropout=0.1)"}))
    assert simpler.spec.settings.training_arguments["optim"] == "sgd"
    assert "model" not in simpler.spec.settings.hooks
    assert not unpredictable(simpler.spec)


@pytest.mark.parametrize("optimizer", ["galore_adamw", "apollo_adamw_layerwise"])
def test_optimizer_that_is_not_traced_leaves_one_without_states(optimizer):
    simpler = traceable(build_tiny_spec({"optimizer": optimizer}))
    assert simpler.spec.settings.training_arguments["optim"] == "sgd"
    assert not unpredictable(simpler.spec)


@pytest.mark.parametrize(
    ("axis", "value"), [("attention", "flex_attention"), ("optimizer", "galore_adamw")]
)
def test_bound_without_a_step_is_that_with_one(monkeypatch, axis, value):
    spec = build_tiny_spec({axis: value})
    assert traceable(spec).holds_only
    [without] = estimator.predict([spec], load_gpu("h100"))
    monkeypatch.setattr(estimator, "HeldGroup", ModelGroup)
    [with_step] = estimator.predict([spec], load_gpu("h100"))
    assert without.bounds is not None
    assert without.bounds == with_step.bounds


def test_step_that_cannot_be_traced_leaves_a_bound(monkeypatch):
    def untraceable(*_, **__):
        raise ValueError("no step")

    monkeypatch.setattr("orchestrator.prediction.tracing.fake_step.FakeStep._pass", untraceable)
    [figure] = estimator.predict([build_tiny_spec()], load_gpu("h100"))
    [bound] = estimator.predict(
        [build_tiny_spec({"attention": "flex_attention"})], load_gpu("h100")
    )
    assert (figure.unknown, figure.bounds) == ("ValueError: no step", None)
    assert bound.bounds is not None


@pytest.mark.parametrize(
    ("offload", "is_dropped"), [("zero3_nvme_optimizer", True), ("zero3_nvme_both", False)]
)
def test_engine_that_holds_all_weights_is_left_out(offload, is_dropped):
    simpler = traceable(build_tiny_spec({"offload": offload}))
    assert simpler.holds_only == is_dropped
    assert simpler.weights == (0.5 if is_dropped else 1.0)
    assert bool(unpredictable(simpler.spec)) != is_dropped
