"""What every technique must keep to: requirements with answers, registered hooks, plain data."""

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import transformers
from transformers.training_args import OptimizerNames

from jobs.spec import HookPlace, TrialSpec, from_json, to_json
from jobs.techniques import AXES
from jobs.techniques.axes.activations import RENAMED
from jobs.techniques.hooks import registered
from jobs.techniques.variant import OTHER_WORKLOAD
from jobs.trial import requirements
from orchestrator.planning.prechecks.technique_requirements import _ANSWERS
from orchestrator.planning.validity import RULES
from tests.conftest import build_tiny_spec


def rows() -> Iterator[Any]:
    """(axis, name, variant) of every row."""
    for axis in AXES.values():
        for name, variant in axis.variants.items():
            yield pytest.param(axis, name, variant, id=f"{axis.name}={name}")


every_row = pytest.mark.parametrize(("axis", "name", "variant"), list(rows()))
every_axis = pytest.mark.parametrize("axis", list(AXES.values()), ids=list(AXES))

KNOWN_ARGUMENTS = {
    field.name for field in dataclasses.fields(transformers.TrainingArguments) if field.init
}


@every_axis
def test_axis_with_an_unknown_value_raises(axis):
    for value in ("no_such_variant", 0, -1, True, 1.5):
        with pytest.raises(KeyError):
            axis.variant(value)


@every_axis
def test_axis_default_trains_exactly_and_anywhere(axis):
    variant = axis.variant(axis.default)
    assert (variant.numerical_effect, variant.requires) == ("exact", ())


@every_row
def test_variant_is_sound(axis, name, variant):
    """Everything that a row names exists, and a trial with it survives JSON."""
    spec = build_tiny_spec({axis.name: name})
    for requirement in variant.requires:
        assert "there is no check" not in requirements.unmet_reason(requirement, spec)
    for place, hook in variant.hooks.items():
        assert place in get_args(HookPlace)
        assert callable(registered(hook.name))
    for argument in variant.training_arguments:
        assert {argument, RENAMED.get(argument, argument)} & KNOWN_ARGUMENTS
    if "optim" in variant.training_arguments:
        assert variant.training_arguments["optim"] in list(OptimizerNames)
    copy = from_json(TrialSpec, json.loads(json.dumps(to_json(spec))))
    assert copy.trial_id == spec.trial_id
    assert to_json(copy) == to_json(spec)


def test_every_trait_of_a_row_is_asked_for_by_a_rule():
    asked = {trait.removeprefix("not ") for traits, _ in RULES.values() for trait in traits}
    # Every comparison asks for the first one, and the plan for what the model and the data tell.
    asked = asked | {OTHER_WORKLOAD} | set(_ANSWERS)
    for axis in AXES.values():
        for name, variant in axis.variants.items():
            assert set(variant.traits) <= asked, f"{axis.name}={name}"


def test_docs_have_one_style():
    """They become the configuration reference: one line in sentence case without a full stop."""
    docs = [axis.doc for axis in AXES.values()]
    for axis in AXES.values():
        docs += [variant.doc for variant in axis.variants.values()]
    for doc in docs:
        # A name in lower case has a digit or a sign in it, as bf16 and torch.optim have.
        assert not re.match(r"[a-z]+ ", doc), doc
        assert not doc.endswith(".")
        assert "\n" not in doc
    assert len(set(docs)) == len(docs), "two rows have the same description"
