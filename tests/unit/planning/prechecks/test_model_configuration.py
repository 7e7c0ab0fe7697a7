"""Keys of model.config against the configuration classes of the installed transformers."""

from typing import Any

import pytest

from jobs.spec import ModelSpec
from orchestrator.planning.prechecks.model_configuration import (
    ModelConfiguration,
    model_key_problems,
)
from orchestrator.planning.problems import KeyPath


def problems(architecture: str, config: dict[str, Any]) -> list[tuple[KeyPath, str]]:
    model = ModelSpec(task="causal-lm", architecture=architecture, config=config)
    return list(model_key_problems(ModelConfiguration.of(model), config))


@pytest.mark.parametrize(
    ("architecture", "key", "meant"),
    [
        ("llama", "n_head", "num_attention_heads"),
        ("gpt2", "n_embed", "n_embd"),
        ("bert", "rope_theta", "BertConfig has no such key"),
    ],
)
def test_unknown_model_key_is_named_with_what_was_meant(architecture, key, meant):
    ((at, message),) = problems(architecture, {key: 2})
    assert at == (key,)
    assert meant in message


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("bert", {"hidden_size": 64, "num_labels": 3, "id2label": {0: "a"}}),
        ("gpt2", {"hidden_size": 64, "n_layer": 2, "n_positions": 8}),
        ("llama", {"rope_theta": 1e4, "rope_scaling": None, "torch_dtype": "float32"}),
        ("t5", {"num_layers": 2, "num_hidden_layers": 2, "feed_forward_proj": "gated-gelu"}),
        ("clip", {"text_config": {"hidden_size": 64}, "text_config_dict": {}}),
        ("llava", {"text_config": {"model_type": "gpt2", "n_embd": 64}}),
    ],
)
def test_valid_model_keys_have_no_problem(architecture, config):
    assert problems(architecture, config) == []


@pytest.mark.parametrize(
    ("architecture", "part", "key", "name"),
    [
        ("clip", {}, "hiden_size", "CLIPTextConfig"),
        ("llava", {"model_type": "gpt2"}, "num_key_value_heads", "GPT2Config"),
    ],
)
def test_unknown_key_of_a_part_is_named_with_its_path(architecture, part, key, name):
    ((at, message),) = problems(architecture, {"text_config": {**part, key: 2}})
    assert at == ("text_config", key)
    assert name in message


def test_value_has_a_default_and_is_known_by_both_names():
    for config, positions in (({}, 1024), ({"n_positions": 8}, 8)):
        model = ModelSpec(task="causal-lm", architecture="gpt2", config=config)
        configuration = ModelConfiguration.of(model)
        assert configuration.value("max_position_embeddings") == positions
        assert configuration.value("nothing") is None
