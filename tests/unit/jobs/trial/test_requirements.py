"""Requirements of techniques, answered for this node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.errors import UnsupportedError
from jobs.spec import TrialSpec
from jobs.trial.requirements import check, unmet_reason
from tests.conftest import build_tiny_spec


def test_check_raises_for_the_first_unmet_requirement() -> None:
    with pytest.raises(UnsupportedError, match="no_such_package is not installed") as caught:
        check(["transformers>=5.0", "package:no_such_package", "nonsense"], build_tiny_spec())
    assert caught.value.rule == "package:no_such_package"


def test_unmet_reason_of_an_unknown_requirement_says_so() -> None:
    reason = unmet_reason("phase of the moon", build_tiny_spec())
    assert reason == "there is no check for the requirement 'phase of the moon'"


@pytest.mark.parametrize(("version", "is_met"), [("5.0", True), ("99.0", False)])
def test_unmet_reason_compares_versions(version: str, is_met: bool) -> None:
    assert (unmet_reason(f"transformers>={version}", build_tiny_spec()) == "") is is_met


def with_dropout(spec: TrialSpec, rate: float) -> TrialSpec:
    config = {**spec.model.config, "attention_probs_dropout_prob": rate}
    return replace(spec, model=replace(spec.model, config=config))


def test_unmet_reason_names_the_models_attention_dropout() -> None:
    spec = build_tiny_spec()
    reason = unmet_reason("no_attention_dropout", with_dropout(spec, 0.1))
    assert "attention_probs_dropout_prob=0.1" in reason
    assert unmet_reason("no_attention_dropout", with_dropout(spec, 0.0)) == ""
