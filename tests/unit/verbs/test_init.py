"""``orchestrator init``: a shipped configuration, written here and never over another file."""

import json
from pathlib import Path

import pytest

from orchestrator import __main__, init
from orchestrator.distribution import tool_version
from orchestrator.planning.config import load_config

SHIPPED = {path.stem for path in (Path(__file__).parents[3] / "configs").glob("*.yaml")}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_a_configuration_that_loads_and_its_schema(here):
    assert init.main([]) == 0
    assert load_config(here / "quickstart.yaml").name == "quickstart"
    assert json.loads((here / "schema.json").read_text())["title"]


def test_init_again_changes_nothing(here):
    assert init.main(["vit"]) == 0
    assert init.main(["vit"]) == 0


def test_init_never_writes_over_another_file_without_force(here, capsys):
    (here / "vit.yaml").write_text("mine")
    assert init.main(["vit"]) == 2
    assert "already exists; nothing was written" in capsys.readouterr().err
    assert [path.name for path in here.iterdir()] == ["vit.yaml"]
    assert (here / "vit.yaml").read_text() == "mine"
    assert init.main(["vit", "--force"]) == 0
    assert load_config(here / "vit.yaml").name == "vit"


def test_init_lists_every_shipped_configuration_with_a_line(capsys):
    assert init.main(["--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {*listed} == SHIPPED
    assert all(listed.values())


def test_init_of_an_unknown_name_says_what_was_meant(here, capsys):
    assert init.main(["quikstart"]) == 2
    assert 'did you mean "quickstart"' in capsys.readouterr().err
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version_is_that_of_the_distribution(option, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["orchestrator", option])
    assert __main__.main() == 0
    assert capsys.readouterr().out == f"orchestrator {tool_version()}\n"
