"""A short chaos run: the faults around a trial that no other test has, on nodes of their own."""

import pytest

from tests.support.commands import python

KINDS = ["does not answer any more", "another process on a GPU"]


@pytest.mark.slow
def test_no_record_is_lost_missing_or_repeated():
    count = str(len(KINDS))
    done = python("-m", "tests.chaos", "--faults", count, "--seed", "1", "--kinds", *KINDS)
    if "which this system does not grant" in done.stderr:
        pytest.skip("no namespaces here")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert f"{count} of {count} faults, of {count} kinds" in done.stdout
