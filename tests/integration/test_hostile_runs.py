"""Runs from a stranger, on every surface: they are shown as text or refused in a sentence."""

from tests.hostile.__main__ import campaign
from tests.hostile.surfaces import judged
from tests.support.guarded_export import CANARY

SEEDS = range(1000, 1005)


def test_hostile_runs_are_inert_on_every_surface(tmp_path):
    tallies = campaign(SEEDS, tmp_path)
    assert {surface: tally.wrong for surface, tally in tallies.items() if tally.wrong} == {}
    assert tallies["report"].runs == len(SEEDS)
    assert tallies["jobs"].runs == 1


def test_judge_notices_a_payload_that_is_executed(tmp_path):
    def main() -> int:
        (tmp_path / CANARY).touch()
        return 0

    assert judged("report", tmp_path, main).wrong == "a payload was executed"


def test_judge_notices_a_traceback(tmp_path):
    def main() -> int:
        raise KeyError("x")

    assert "KeyError" in judged("report", tmp_path, main).wrong
