"""Shell completion: every verb, every option and the values of those that have few."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import __main__, completion, recommend

ROOT = Path(__file__).parents[3]
TYPED = """
complete_words() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    $(complete -p orchestrator | sed 's/.* -F \\([^ ]*\\).*/\\1/')
    echo "${COMPREPLY[*]}"
}
complete_words orchestrator rec
complete_words orchestrator recommend --obj
complete_words orchestrator recommend --objective sam
complete_words orchestrator report pyproj
"""


def script(shell: str) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "orchestrator", "completion", shell]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_bash_completes_what_is_typed() -> None:
    done = subprocess.run(
        ["bash"], input=script("bash") + TYPED, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "recommend",
        "--objective",
        "samples_per_second",
        "pyproject.toml",
    ]


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_shell_is_told_of_every_verb_and_option(shell: str) -> None:
    text = script(shell)
    assert [verb for verb in __main__.verbs() if verb not in text] == []
    options = {
        name for action in recommend.command_line()._actions for name in action.option_strings
    }
    assert [name for name in options if name.lstrip("-") not in text] == []
