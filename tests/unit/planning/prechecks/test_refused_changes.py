"""Adapters, and names of weights to train, that the libraries refuse for the model."""

from dataclasses import replace

import pytest

from jobs.library_facts.__main__ import answer
from jobs.spec import ModelSpec
from orchestrator.planning import library_facts
from orchestrator.planning.prechecks.refused_changes import refused_changes

REFUSED = {
    "lora(r=8,target_modules=[Wqkv])": "have only targeted modules that are marked to be saved",
    "ln_tuning": "Please specify `target_modules`",
}
ACCEPTED = ("lora_r8", "lora(r=8,init_lora_weights=pissa)")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch, tmp_path):
    """Its own process would import the libraries for seconds."""
    monkeypatch.setattr(library_facts, "_asked", answer)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def _said(specs) -> tuple[list[str], list[str]]:
    notes: list[str] = []
    return list(refused_changes(specs, notes.append)), notes


def test_adapters_that_peft_refuses_are_named_once_each(tiny_spec):
    specs = [tiny_spec({"adapter": own}) for own in (*REFUSED, *ACCEPTED, *REFUSED)]
    said, notes = _said([tiny_spec(), *specs])
    assert len(notes) == 1
    for text, (adapter, reason) in zip(said, REFUSED.items(), strict=True):
        assert text.startswith(f"every trial with {adapter} would end as unsupported")
        assert reason in text


def test_names_that_no_weight_has_are_named(tiny_spec):
    specs = [tiny_spec({"trainable": f"matching(patterns=[{own}])"}) for own in ("lm_hed", "pool")]
    (said,), _ = _said(specs)
    assert "no parameter has a match of ['lm_hed']" in said


def test_nothing_is_asked_of_plain_trials_and_nothing_said_of_a_model_that_is_missing(tiny_spec):
    all_linear = tiny_spec({"adapter": "lora(r=4,target_modules=all-linear)"})
    assert _said([tiny_spec(), all_linear, tiny_spec({"adapter": "lora_r8_all_linear"})]) == (
        [],
        [],
    )
    spec = tiny_spec({"adapter": "lora(r=8,target_modules=[Wqkv])"})
    model = ModelSpec(task="causal-lm", name_or_path="/no/such/folder")
    for _ in range(2):
        said, notes = _said([replace(spec, model=model)])
        # It is asked again, because the model may be there another time.
        assert (said, len(notes)) == ([], 1)
