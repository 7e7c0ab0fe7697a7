"""One slot for the tests of a file, as in a sweep."""

import functools
import os
from collections.abc import Callable, Iterator

import pytest
import yaml

from jobs.isolation.slot import Slot
from jobs.record import TrialRecord
from tests.gpu.shared import DECODER, measured, planned

Run = Callable[[str], TrialRecord]
"""Runs the decoder's trial with these choices (YAML), each once: bf16, and micro-batch 8."""


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    with Slot(cpus=os.cpu_count() or 1) as slot:
        yield slot


@pytest.fixture(scope="module")
def run(slot: Slot, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("decoder")

    @functools.cache
    def run_once(choices: str) -> TrialRecord:
        chosen = {"precision": "bf16", "micro_batch": 8, **yaml.safe_load(choices)}
        record = measured(slot, planned(folder, DECODER, chosen, (1024, 512)))
        row = record.measurements
        print(
            choices,
            f"{row['samples_per_second']:.1f}/s",
            f"{row['device_peak_bytes'] / 2**30:.2f} GiB",
            f"first step {row['first_step_seconds']:.1f} s",
            *map(row.get, ("compiled_graphs", "compile_graph_breaks", "compile_cache_hits")),
        )
        return record

    return run_once
