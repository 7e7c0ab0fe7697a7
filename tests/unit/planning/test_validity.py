"""Which combinations of decoder techniques are invalid, and by which rule."""

from collections.abc import Mapping

import pytest
import yaml

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.planning.validity import broken_rules, traits_of
from tests.support.commands import ROOT

CASES = (ROOT / "tests/golden/rules.txt").read_text().splitlines()
"""Choices -> the rule against them, or valid."""


def rules_against(choices: Mapping[str, Choice]) -> set[str]:
    """The names of the rules that forbid these choices; other axes keep their default."""
    chosen = {axis.name: axis.default for axis in AXES.values()} | dict(choices)
    variants = {name: AXES[name].variant(value) for name, value in chosen.items()}
    return {name for name, _ in broken_rules(traits_of(chosen, variants))}


@pytest.mark.parametrize("case", CASES)
def test_rules_forbid_combination_that_cannot_train(case):
    choices, _, rule = case.partition(" -> ")
    assert rules_against(yaml.safe_load(f"{{{choices}}}")) == {rule} - {"valid"}


@pytest.mark.parametrize("loss", ["chunked", "liger", "cce"])
def test_fused_loss_is_forbidden_with_zero3_only(loss):
    for name, variant in AXES["offload"].variants.items():
        stage = ((variant.deepspeed or {}).get("zero_optimization") or {}).get("stage")
        rules = rules_against({"offload": name, "loss": loss})
        assert ("fused_loss_needs_whole_weights" in rules) == (stage == 3), name
