"""The config's choice of a search, checked against the table of kinds."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.planning.search_choice import search_of, search_problems
from orchestrator.planning.search_kinds import SEARCH_KINDS


@pytest.mark.parametrize("kind", SEARCH_KINDS)
def test_search_by_name_has_every_default(kind: str) -> None:
    choice = search_of(kind)
    assert choice == search_of({"kind": kind})
    expected = {name: option.default for name, option in SEARCH_KINDS[kind].options.items()}
    assert (choice.kind, choice.options) == (kind, expected)


@pytest.mark.parametrize("kind", SEARCH_KINDS)
def test_search_defaults_are_valid(kind: str) -> None:
    assert not list(search_problems({"kind": kind, **search_of(kind).options}))


def test_search_given_option_replaces_its_default() -> None:
    choice = search_of({"kind": "frontier", "tolerance": 0.1})
    assert choice.options["tolerance"] == 0.1
    assert choice.options["seed"] == 0


@pytest.mark.parametrize(
    ("value", "at", "message"),
    [
        (3, ("search",), "must be a kind of search or a mapping, not 3"),
        ("optuna", ("search",), 'the search "optuna" was removed'),
        ({"kind": "optuna", "share": 0.5}, ("search", "kind"), 'the search "optuna" was removed'),
        ({"kind": "frontier", "share": 0.5}, ("search", "share"), 'the search "optuna" was'),
        ({"kind": ["grid"]}, ("search", "kind"), "a list is not known; "),
        ({"tolerance": 0.1}, ("search", "tolerance"), "only search: {kind: frontier} has this"),
        ({"kind": "frontier", "sed": 1}, ("search", "sed"), 'unknown key; did you mean "seed"?'),
        ({"kind": "frontier", "tolerance": 1}, ("search", "tolerance"), "must be below 1, not 1"),
        ({"kind": "frontier", "tolerance": -1}, ("search", "tolerance"), "must be at least 0"),
        ({"kind": "frontier", "seed": True}, ("search", "seed"), "must be an integer, not the bo"),
        (
            {"kind": "frontier", "audit_fraction": float("nan")},
            ("search", "audit_fraction"),
            "must be at least 0, not nan",
        ),
        (
            {"kind": "frontier", "audit_fraction": 1.5},
            ("search", "audit_fraction"),
            "must be at most 1, not 1.5",
        ),
    ],
)
def test_search_problems_name_the_key(value: Any, at: tuple[str, ...], message: str) -> None:
    ((key_path, problem),) = search_problems(value)
    assert key_path == at
    assert problem.startswith(message)
