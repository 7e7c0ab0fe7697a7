"""One slot for the tests of a file, as in a sweep."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from jobs.isolation.slot import Slot


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    with Slot(cpus=os.cpu_count() or 1) as slot:
        yield slot
