"""Old keys: they still work, and the config says what they are called now."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.planning.config import ConfigError, SweepConfig

OLD = """
measure: {deadline: 7m, verify: false, turns: 2, anatomy: none}
search: {kind: frontier, audit: 0.5}
resources: {calibrate: false}
trackers: [mlflow]
cpu: {steps: 7}
"""
NEW = """
measure: {timeout: 7m}
follow_up: {verify_budgets: false, tie_break_rounds: 2, profile: none}
search: {kind: frontier, audit_fraction: 0.5}
resources: {screen_gpus: false}
loggers: [mlflow]
cpu_fallback: {steps: 7}
"""


def test_old_keys_mean_what_the_new_keys_mean(load: Callable[[str], SweepConfig]) -> None:
    old = load(OLD)
    assert old.to_json() == load(NEW).to_json()
    assert len(old.notes) == 8


def test_old_key_is_noted_with_its_line(load: Callable[[str], SweepConfig]) -> None:
    config = load("measure:\n  steps: 3\n  deadline: 1m\n")
    assert config.measure.timeout_seconds == 60
    (note,) = config.notes
    assert note == (
        f"{config.path}:4: measure.deadline is now measure.timeout; "
        "the old key still works in this version"
    )


def test_new_keys_are_not_noted(load: Callable[[str], SweepConfig]) -> None:
    assert load(NEW).notes == ()


def test_mistake_under_an_old_key_has_its_line(load: Callable[[str], SweepConfig]) -> None:
    with pytest.raises(ConfigError, match=r":3: loggers: \"neptune\" is not known"):
        load("name: old\ntrackers: [neptune]\n")


def test_old_key_whose_new_section_is_wrong_is_unknown(
    load: Callable[[str], SweepConfig],
) -> None:
    with pytest.raises(ConfigError) as caught:
        load("measure: {verify: false}\nfollow_up: 3\n")
    messages = [(problem.key, problem.message) for problem in caught.value.problems]
    assert ("follow_up", "must be a mapping, not 3") in messages
    assert messages[0][0] == "measure.verify"
    assert messages[0][1].startswith("unknown key")
