"""The sources of a user's own modules are found and hashed, and none of them is run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.finetuning.user_code.sources import SourceError, source_digest
from jobs.spec import UserCode
from jobs.spec.users_code import is_object_name

MARK = "raise SystemExit('imported')\n"


@pytest.fixture
def own(tmp_path: Path) -> UserCode:
    """A package that must not be imported, whose Trainer uses another module of its own."""
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text(MARK)
    (package / "train.py").write_text(f"{MARK}from .loss import mean\nclass Mine: ...\n")
    (package / "loss.py").write_text(f"{MARK}def mean(): ...\n")
    (package / "unused.py").write_text(MARK)
    return UserCode(trainer="pack.train:Mine", folder=str(tmp_path))


@pytest.mark.parametrize("file", ["__init__.py", "train.py", "loss.py"])
def test_digest_changes_with_every_module_that_the_trainer_runs(file: str, own: UserCode) -> None:
    before = source_digest(own)
    path = Path(own.folder, "pack", file)
    path.write_text(path.read_text() + "# edited\n")
    assert source_digest(own) != before


def test_digest_stays_when_another_module_changes(own: UserCode) -> None:
    before = source_digest(own)
    Path(own.folder, "pack/unused.py").write_text("")
    assert source_digest(own) == before


def test_digest_follows_a_module_beside_the_config(own: UserCode) -> None:
    Path(own.folder, "helper.py").write_text("one = 1\n")
    Path(own.folder, "mine.py").write_text("def f():\n    import helper\n")
    own = replace(own, trainer="", entry="mine:f")
    before = source_digest(own)
    Path(own.folder, "helper.py").write_text("one = 2\n")
    assert source_digest(own) != before


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere:Mine", "there is no module nowhere"),
        ("pack.nowhere:Mine", "there is no module pack.nowhere"),
        ("pack.train:Theirs", "defines no Theirs"),
        ("broken:Mine", "cannot be read as Python"),
    ],
)
def test_digest_of_a_mistake_is_a_sentence(name: str, sentence: str, own: UserCode) -> None:
    Path(own.folder, "broken.py").write_text("class Mine(:\n")
    with pytest.raises(SourceError, match=sentence):
        source_digest(replace(own, trainer=name))


@pytest.mark.parametrize(
    ("text", "is_name"),
    [
        ("my_package.train:MyTrainer", True),
        ("train:Mine", True),
        ("train", False),
        ("train:Mine.inner", False),
        ("train:import", False),
        ("os;import evil:x", False),
        ("train:x\nimport os", False),
        ("tráin:Mine", False),
        ("a" * 300 + ":Mine", False),
        (None, False),
    ],
)
def test_is_object_name_takes_plain_names_only(text: object, is_name: bool) -> None:
    assert is_object_name(text) is is_name
