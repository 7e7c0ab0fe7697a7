"""Trials without what is not traced, and what that says of them."""

import pytest

from orchestrator.prediction.bounds import traceable
from orchestrator.prediction.unsupported import unpredictable
from tests.conftest import build_tiny_spec

ADAPTER = {"adapter": "lora_r8"}


@pytest.mark.parametrize(
    ("choices", "only_save", "weights"),
    [
        ({}, True, 1.0),
        ({"compile": "inductor_regional"}, True, 1.0),
        ({"compile": "inductor"}, False, 1.0),
        ({**ADAPTER, "base": "bnb_8bit"}, False, 0.25),
        ({**ADAPTER, "base": "bnb_4bit", "compile": "inductor_regional"}, True, 1.0),
        ({"attention": "flex_attention"}, False, 1.0),
        ({"qat": "int8_int4"}, False, 1.0),
        ({"activations": "checkpoint_offload"}, False, 1.0),
        ({"activations": "checkpoint_selective"}, False, 1.0),
        ({**ADAPTER, "loop": "trl_dpo"}, False, 1.0),
        ({"loop": "trl_sft"}, False, 1.0),
    ],
)
def test_traceable_trial_keeps_what_can_be_traced(choices, only_save, weights):
    simpler = traceable(build_tiny_spec(choices))
    assert not unpredictable(simpler.spec)
    assert (simpler.only_save, simpler.weights) == (only_save, weights)


@pytest.mark.parametrize(
    "choices", [{"trainable": "matching(patterns=[classifier])"}, {"adapter": "loha"}]
)
def test_part_of_the_weights_that_is_not_traced_leaves_a_model_without_states(choices):
    simpler = traceable(build_tiny_spec(choices))
    assert simpler.spec.settings.training_arguments["optim"] == "sgd"
    assert not {"trained", "model"} & set(simpler.spec.settings.hooks)
    assert not unpredictable(simpler.spec)


@pytest.mark.parametrize("optimizer", ["adamw_torch_8bit", "galore_adamw", "muon"])
def test_optimizer_that_is_not_traced_leaves_one_without_states(optimizer):
    simpler = traceable(build_tiny_spec({"optimizer": optimizer}))
    assert simpler.spec.settings.training_arguments["optim"] == "sgd"
    assert "optimizer" not in simpler.spec.settings.hooks
    assert not unpredictable(simpler.spec)
