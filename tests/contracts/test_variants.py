"""What every technique's row must keep to: a line of meaning, answerable requirements, importable hooks, plain data."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import transformers

from jobs.errors import UnsupportedError
from jobs.node import requirements
from jobs.spec import TrialSpec, spec_from_json, to_json
from jobs.techniques import AXES, Axis, Effect, Variant
from jobs.techniques.axes.activations import RENAMED
from tests.conftest import build_tiny_spec

PLACES = ("collator", "compiler", "kernels", "model", "optimizer", "loop")


def rows() -> Iterator[Any]:
    """(axis, name, variant) of every row there is."""
    for axis in AXES.values():
        for name, variant in axis.variants.items():
            yield pytest.param(axis, name, variant, id=f"{axis.name}={name}")


every_row = pytest.mark.parametrize(("axis", "name", "variant"), list(rows()))
every_axis = pytest.mark.parametrize("axis", list(AXES.values()), ids=list(AXES))


@every_axis
def test_an_axis_says_what_it_is_and_knows_its_default(axis: Axis) -> None:
    assert axis.doc.strip()
    assert "\n" not in axis.doc
    assert axis.variant(axis.default).doc
    assert bool(axis.variants) != bool(axis.integer_argument)


@every_axis
def test_an_axis_knows_no_other_value(axis: Axis) -> None:
    for value in ("no_such_variant", 0, -1, True, 1.5):
        with pytest.raises(KeyError):
            axis.variant(value)


@every_row
def test_a_row_says_what_it_is(axis: Axis, name: str, variant: Variant) -> None:
    assert variant.doc.strip() == variant.doc != ""
    assert "\n" not in variant.doc
    assert variant.effect in get_args(Effect)
    assert name.isidentifier()


@every_row
def test_a_default_changes_nothing(axis: Axis, name: str, variant: Variant) -> None:
    assert name != axis.default or variant.effect == "exact"
    assert name != axis.default or not variant.requires


@every_row
def test_requirements_have_answers(axis: Axis, name: str, variant: Variant) -> None:
    spec = build_tiny_spec({axis.name: name})
    for requirement in variant.requires:
        answer = unmet(requirement, spec)
        assert answer is None or answer.rule
        assert "nobody knows" not in str(answer)
        assert "\n" not in str(answer)


def unmet(requirement: str, spec: TrialSpec) -> UnsupportedError | None:
    """What this machine has to say of a requirement; None when it meets it."""
    try:
        requirements.check([requirement], spec)
    except UnsupportedError as error:
        return error
    return None


def test_a_requirement_that_nobody_knows_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="nobody knows how to check 'phase of the moon'"):
        requirements.check(["phase of the moon"], build_tiny_spec())


@every_row
def test_hooks_can_be_called(axis: Axis, name: str, variant: Variant) -> None:
    for place, (path, arguments) in variant.hooks.items():
        assert place in PLACES
        module, _, function = path.partition(":")
        assert callable(getattr(importlib.import_module(module), function))
        assert json.loads(json.dumps(arguments)) == arguments


@every_row
def test_training_arguments_exist(axis: Axis, name: str, variant: Variant) -> None:
    known = {
        field.name for field in dataclasses.fields(transformers.TrainingArguments) if field.init
    }
    for argument in variant.training_arguments:
        assert {argument, RENAMED.get(argument, argument)} & known


@every_row
def test_a_trial_travels_as_json(axis: Axis, name: str, variant: Variant) -> None:
    spec = build_tiny_spec({axis.name: name})
    travelled = spec_from_json(json.loads(json.dumps(to_json(spec))))
    assert travelled.trial_id == spec.trial_id
    assert to_json(travelled) == to_json(spec)


def test_no_two_rows_are_the_same_trial() -> None:
    """But for each axis's default, which is the same trial on every axis."""
    ids = [
        build_tiny_spec({axis.name: name}).trial_id
        for axis in AXES.values()
        for name in axis.variants
    ]
    defaults = [
        build_tiny_spec({axis.name: axis.default}).trial_id
        for axis in AXES.values()
        if axis.variants
    ]
    assert len(set(defaults)) == 1
    assert len(ids) - len(set(ids)) == len(defaults) - 1


@every_row
def test_kin_are_of_one_axis_and_one_stands_for_all(
    axis: Axis, name: str, variant: Variant
) -> None:
    assert not variant.kin or (variant.kin != name and axis.variants[variant.kin].kin == "")


@every_row
def test_work_on_the_host_is_shared_within_an_axis(axis: Axis, name: str, variant: Variant) -> None:
    assert name not in variant.host_work_of
    for other in variant.host_work_of:
        assert set(axis.variants[other].host_work_of) <= {name, *variant.host_work_of}
