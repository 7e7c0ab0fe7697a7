"""Facts of libraries are asked for once, and never stop a command."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.planning import library_facts
from orchestrator.planning.library_facts import NoAnswerError, answer_of, answers_of

ASKED: list[Any] = []


@pytest.fixture(autouse=True)
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test alone, and a process that answers at once."""
    monkeypatch.setattr(library_facts, "_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(library_facts, "_asked", answered)
    ASKED.clear()
    return tmp_path / "cache"


def answered(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ASKED.extend(questions)
    return questions


def asked_twice(question: dict[str, Any]) -> int:
    said: list[str] = []
    for _ in range(2):
        assert answer_of(question, "this takes a while", said.append) == question
    assert set(said) <= {"this takes a while"}
    return len(ASKED)


def test_answer_is_remembered(process):
    assert asked_twice({"one": 1}) == 1
    assert [path.suffix for path in process.iterdir()] == [".json"]


def test_only_new_questions_are_asked_and_in_one_process(monkeypatch):
    asked_twice({"two": 2})
    questions = [{"one": 1}, {"two": 2}, {"three": 3}]
    calls: list[Any] = []
    monkeypatch.setattr(library_facts, "_asked", lambda asked: calls.append(asked) or asked)
    assert answers_of(questions, "this takes a while", print) == questions
    assert calls == [[{"one": 1}, {"three": 3}]]


def test_reason_without_an_answer_is_not_remembered():
    assert asked_twice({"reason": "offline"}) == 2


def test_unreadable_answer_is_asked_for_again(process):
    asked_twice({"one": 1})
    (file,) = process.iterdir()
    file.write_text('{"on')
    assert asked_twice({"one": 1}) == 2


def test_answer_is_not_believed_after_any_package_changed(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    for number, change in enumerate(("kernels-0.11.dist-info", "kernels-0.12.dist-info")):
        assert asked_twice({"one": 1}) == number + 1
        (tmp_path / change).mkdir()
        library_facts._identities.cache_clear()
    assert asked_twice({"one": 1}) == 3
    library_facts._identities.cache_clear()


def test_cache_whose_place_is_taken_is_done_without(process):
    process.write_text("a file")
    assert asked_twice({"one": 1}) == 2


def test_process_without_an_answer_is_a_sentence(monkeypatch):
    monkeypatch.undo()
    with pytest.raises(NoAnswerError, match="KeyError"):
        library_facts._asked([{"nothing": 1}])


def test_broken_library_leaves_names_unchecked_with_a_note(monkeypatch, capsys):
    def fails(question: Any) -> None:
        raise NoAnswerError("ImportError: torch is damaged")

    monkeypatch.setattr(library_facts, "_asked", fails)
    assert library_facts.facts.__wrapped__() == {}
    assert "are not checked, because the libraries cannot be read: ImportError" in (
        capsys.readouterr().err
    )
