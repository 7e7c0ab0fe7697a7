"""Adapters, and names of weights to train, that the libraries refuse for the model."""

from dataclasses import replace

import pytest

from jobs.library_facts.__main__ import answers
from jobs.spec import ModelSpec
from orchestrator.planning import library_facts
from orchestrator.planning.config import load_config
from orchestrator.planning.prechecks.built_model import changes_of, size_and_refused
from tests.support.commands import ROOT

REFUSED = {
    "lora(r=8,target_modules=[Wqkv])": "have only targeted modules that are marked to be saved",
    "ln_tuning": "Please specify `target_modules`",
}
ACCEPTED = ("lora_r8", "lora_r8_all_linear", "lora(r=8,init_lora_weights=pissa)")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch, tmp_path):
    """Its own process would import the libraries for seconds."""
    monkeypatch.setattr(library_facts, "_asked", answers)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def _said(specs, model=None):
    notes: list[str] = []
    size, said = size_and_refused(model or specs[0].model, changes_of(specs), notes.append)
    return size, said, notes


def test_adapters_that_peft_refuses_are_named_once_each(tiny_spec):
    specs = [tiny_spec({"adapter": own}) for own in (*REFUSED, *ACCEPTED, *REFUSED)]
    size, said, notes = _said([tiny_spec(), *specs])
    assert size.parameters
    assert len(notes) == 1
    for text, (adapter, reason) in zip(said, REFUSED.items(), strict=True):
        assert text.startswith(f"every trial with {adapter} would end as unsupported")
        assert reason in text
    assert _said(specs) == (size, said, [])


def test_names_that_no_weight_has_are_named(tiny_spec):
    specs = [tiny_spec({"trainable": f"matching(patterns=[{own}])"}) for own in ("lm_hed", "pool")]
    _, (said,), _ = _said(specs)
    assert "no parameter has a match of ['lm_hed']" in said


def test_head_that_lora_in_all_linear_layers_would_wrap_is_named(tiny_spec):
    spec = tiny_spec({"adapter": "lora_r8_all_linear"})
    config = {"dim": 8, "hidden_dim": 16, "n_layers": 1, "n_heads": 2, "vocab_size": 32}
    model = ModelSpec(task="sequence-classification", architecture="distilbert", config=config)
    _, (said,), _ = _said([spec], model)
    assert "lora_r8_all_linear would end as unsupported" in said


def test_nothing_is_asked_of_a_shipped_model_and_lora_in_all_linear_layers(tiny_spec):
    specs = [tiny_spec(), tiny_spec({"adapter": "lora_r8_all_linear"})]
    size, said, notes = _said(specs, load_config(ROOT / "configs/bert_large.yaml").model)
    assert size.parameters
    assert (said, notes) == ((), [])


def test_nothing_is_said_of_adapters_for_a_model_that_is_missing(tiny_spec):
    spec = tiny_spec({"adapter": "lora(r=8,target_modules=[Wqkv])"})
    model = ModelSpec(task="causal-lm", name_or_path="/no/such/folder")
    for _ in range(2):
        _, said, notes = _said([replace(spec, model=model)])
        # It is asked again, because the model may be there another time.
        assert (said, len(notes)) == ((), 1)
