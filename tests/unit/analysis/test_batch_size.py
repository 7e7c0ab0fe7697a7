"""What a batch-size search answers, in words and as data."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.analysis.batch_size import Answer, describe
from orchestrator.search.batch_size.search import BatchSize
from tests.support.devices import Device, make_trial, run_to_the_end


def tune(device: Device, **options: Any) -> Answer:
    """The answer for a simulated device."""
    search = BatchSize(make_trial, techniques="SIMULATED", **options)
    run_to_the_end(search, device)
    return search.answer


def test_multiples_of_8_are_spoken_of_only_where_a_pair_was_measured_to_differ() -> None:
    slow = Device(device_mib=40_000, slowdown=lambda size: 1.0 if size % 8 == 0 else 1.08)
    answer = tune(slow, margin=0.0, exact=True)
    assert answer.alignment is not None
    assert [size.micro_batch for size in answer.alignment] == [65, 64]
    assert {size.trial_id for size in answer.alignment} <= {record.trial_id for record in slow.ran}
    assert "multiples of 8 matter here: 64 was" in describe(answer, "SIMULATED")
    alike = tune(Device(device_mib=40_000), margin=0.0, exact=True)
    assert alike.largest is not None
    assert alike.largest.micro_batch == 65
    assert alike.alignment is None
    assert "multiples of 8" not in describe(alike, "SIMULATED")


def test_cut_short_it_says_so_and_keeps_what_it_has() -> None:
    search, device = BatchSize(make_trial), Device()
    for _ in range(2):
        spec = search.ask()
        assert spec is not None
        search.tell(device.run(spec))
    assert search.answer.largest is not None
    assert search.answer.largest.micro_batch == 128
    assert search.answer.unfinished == "it was ended before its last trial"
    assert "not known to be the largest" in describe(search.answer, "SIMULATED")


TOLD = """\
SIMULATED on SIMULATED GPU (140 GiB, 7.02 GiB kept free)
                             batch           samples/s      memory
  largest that fits            248          346 ±0.3 %     131 GiB  one more: 132 GiB predicted, to within 7
  fastest                      248          346 ±0.3 %     131 GiB
  plateau, 2%                   96          339 ±0.3 %    54.6 GiB  42% of the fastest's memory; 16 is 15.4% slower
  effective batch 256      128 × 2          346 ±0.3 %    72.0 GiB
  5 trials, 23.6 s of slot time: 16 (292/s), 96 (339/s), 128 (342/s), 128 × 2 (346/s), 248 (346/s)"""


def test_the_answer_in_words() -> None:
    assert describe(tune(Device(), effective_batch=256), "SIMULATED GPU") == TOLD


def test_nothing_measured_is_plain_json_too() -> None:
    raw = json.loads(json.dumps(BatchSize(make_trial).answer.to_json()))
    assert (raw["largest"], raw["sizes"]) == (None, [])
