"""Liger's kernels, one by one, with its functions replaced: it needs a GPU to be imported."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from jobs.techniques.axes.kernels import liger_kernels


@pytest.fixture
def applied(monkeypatch):
    """The switches that Liger's functions for a text and for a vision-language model got."""
    switches: dict[str, Any] = {}

    def of_text(rope=True, swiglu=True, rms_norm=True, cross_entropy=True, model=None):
        switches.update(rope=rope, swiglu=swiglu, rms_norm=rms_norm, loss=cross_entropy)

    def of_images(cross_entropy=False, model=None, **kwargs):
        switches.update(loss=cross_entropy, **kwargs)

    liger = ModuleType("liger_kernel.transformers.monkey_patch")
    liger.MODEL_TYPE_TO_APPLY_LIGER_FN = {"llama": of_text, "llava": of_images}
    for name in ("liger_kernel", "liger_kernel.transformers", liger.__name__):
        monkeypatch.setitem(sys.modules, name, liger)
    return switches


def apply(model_type: str, **chosen: bool) -> None:
    model: Any = SimpleNamespace(config=SimpleNamespace(model_type=model_type))
    liger_kernels(model, "causal-lm", None, chosen=chosen)


def test_kernels_that_are_not_chosen_stay_off(applied):
    apply("llama", rms_norm=False, mlp=False)
    assert applied == {"rope": True, "swiglu": False, "rms_norm": False, "loss": False}


def test_choices_reach_the_parts_of_a_vision_language_model(applied):
    apply("llava", rms_norm=False, mlp=False, rope=True)
    assert applied.pop("loss") is False
    assert not any(applied.values())
    assert {"rms_norm", "swiglu", "geglu"} <= applied.keys() - {"rope"} == applied.keys()
