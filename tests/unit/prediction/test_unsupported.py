"""Trials of which nothing is predicted."""

import copy
import importlib.util
from dataclasses import replace
from typing import Any

import pytest
import yaml

from orchestrator.planning.plan import plan
from orchestrator.prediction.unsupported import has_timed_step, kept_on_host, unpredictable
from tests.conftest import build_tiny_spec
from tests.support.commands import ROOT
from tests.support.config_files import config_of

TECHNIQUES = (ROOT / "tests/golden/unpredicted.txt").read_text().splitlines()
"""Choices -> a part of the reason, or predicted."""


@pytest.mark.parametrize("line", TECHNIQUES)
def test_unpredictable_technique_has_a_reason(line):
    choices, _, reason = line.partition(" -> ")
    said = unpredictable(build_tiny_spec(yaml.safe_load(f"{{{choices}}}")))
    assert (reason in said) if said else reason == "predicted"


def test_unpredictable_are_experts_with_kernels_of_the_hub(tmp_path):
    text = "model: {task: causal-lm, architecture: olmoe}\naxes: {experts: [eager, deepgemm]}\n"
    eager, hub = plan(config_of(tmp_path, text)).trials
    assert not unpredictable(eager)
    assert "deepgemm" in unpredictable(hub)


def test_super_offload_of_an_own_deepspeed_file_is_not_predicted():
    spec = build_tiny_spec({"offload": "zero3_cpu_optimizer"})
    assert not unpredictable(spec)
    config: dict[str, Any] = copy.deepcopy(dict(spec.settings.deepspeed or {}))
    config["zero_optimization"]["offload_optimizer"]["super_offload"] = True
    settings = replace(spec.settings, deepspeed=config)
    assert "SuperOffload" in unpredictable(replace(spec, settings=settings))


@pytest.mark.parametrize(
    ("choices", "package"),
    [
        ({"loss": "liger"}, "liger-kernel"),
        ({"kernels": "liger"}, "liger-kernel"),
        ({"loss": "cce"}, "cut-cross-entropy"),
        ({"loop": "trl_sft"}, "trl"),
        ({"activations": "offload"}, "trl"),
        ({"qat": "int8_int4"}, "torchao"),
    ],
)
def test_library_is_traced_where_it_is_installed(choices, package, monkeypatch):
    spec = build_tiny_spec(choices)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert unpredictable(spec).endswith(f"not installed: pip install {package}")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert not unpredictable(spec)


@pytest.mark.parametrize(
    ("choices", "is_timed"),
    [
        ({"activations": "checkpoint"}, True),
        ({"activations": "checkpoint_selective"}, False),
        ({"activations": "checkpoint_offload"}, False),
        ({"loop": "trl_sft(activation_offloading=true)"}, False),
        ({"offload": "zero2_cpu_optimizer"}, False),
    ],
)
def test_time_of_a_step_that_waits_for_the_host_is_not_known(choices, is_timed):
    assert has_timed_step(build_tiny_spec(choices)) is is_timed


@pytest.mark.parametrize("device", ["cpu", "nvme", "none"])
@pytest.mark.parametrize("part", ["optimizer", "param"])
def test_what_a_section_without_a_device_offloads_stays_on_the_gpu(part, device):
    spec = build_tiny_spec({"micro_batch": 1})
    zero = {"stage": 3, f"offload_{part}": {"device": device}}
    settings = replace(spec.settings, deepspeed={"zero_optimization": zero})
    expected = set() if device == "none" else {part}
    assert kept_on_host(replace(spec, settings=settings)) == expected
    assert kept_on_host(spec) == set()
