"""Shell completion of verbs, options, their values and file names."""

import argparse

import pytest

from orchestrator import __main__, completion, recommend
from tests.support.commands import python, ran

SESSION = """
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
    return python("-m", "orchestrator", "completion", shell, check=True).stdout


def test_bash_completes_verbs_options_values_and_files():
    done = ran("bash", input=script("bash") + SESSION, check=True)
    assert done.stdout.splitlines() == [
        "recommend",
        "--objective",
        "samples_per_second",
        "pyproject.toml",
    ]


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_completion_has_every_verb_and_option(shell):
    text = script(shell)
    assert [verb for verb in __main__.verbs() if verb not in text] == []
    for action in recommend.command_line()._actions:
        if action.help is not argparse.SUPPRESS:
            assert all(name.lstrip("-") in text for name in action.option_strings)
