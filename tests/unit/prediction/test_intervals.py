"""How far a measurement may lie from a replay."""

from dataclasses import replace

import pytest

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.intervals import (
    Replayed,
    allocated_interval,
    predicted,
    reserved_interval,
)
from orchestrator.prediction.prediction import CARDS
from orchestrator.prediction.replay import ReplayedPeaks
from orchestrator.units import MIB

H200 = load_gpu("h200")
LOGITS = 16_032 * MIB
"""32-bit logits of 32 sequences of 1,024 tokens over a vocabulary of 128,256."""


def _peaks(
    allocated: int, reserved: int, upwards: int = 0, largest_block: int = 0
) -> ReplayedPeaks:
    return ReplayedPeaks(
        allocated=allocated * MIB,
        reserved=reserved * MIB,
        reserved_upwards=(upwards or reserved) * MIB,
        at_peak={},
        largest_block=largest_block,
    )


@pytest.mark.parametrize(("upwards", "likely"), [(1010, 1000), (1100, 1050), (900, 950)])
def test_reserved_interval_where_the_order_matters_takes_the_middle(upwards, likely):
    reserved = reserved_interval(Replayed(peaks=_peaks(850, 1000, upwards), outside=0))
    assert reserved.bytes == likely * MIB
    assert reserved.low < min(1000, upwards) * MIB
    assert reserved.high > max(1000, upwards) * MIB


def test_llama_of_a_large_vocabulary_is_no_false_fit_on_80_gb(tiny_spec):
    # A 1.2 B Llama with checkpointing at micro-batch 32: its replay, and what an H200 measured.
    peaks = _peaks(67_541, 69_780, largest_block=LOGITS)
    prediction = predicted(tiny_spec(), Replayed(peaks=peaks, outside=767 * MIB), H200)
    assert prediction.device.low <= 86_057 * MIB <= prediction.device.high
    assert prediction.cards[80] == "tight"
    assert prediction.fits(CARDS[141]) == "yes"


def test_reserved_interval_without_huge_blocks_is_narrow():
    # BERT-large: the largest block of a step is under 1 % of what is reserved.
    peaks = _peaks(36_000, 37_000, largest_block=256 * MIB)
    reserved = reserved_interval(Replayed(peaks=peaks, outside=0))
    assert reserved.high - reserved.low < 0.05 * reserved.bytes


def test_reserved_interval_is_never_below_the_tensors():
    peaks = _peaks(36_000, 37_000, largest_block=20_000 * MIB)
    replayed = Replayed(peaks=peaks, outside=0)
    assert reserved_interval(replayed).low == allocated_interval(replayed).low


def test_padded_batch_has_a_wider_interval_and_a_note(tiny_spec):
    peaks = _peaks(1000, 1200, largest_block=10 * MIB)
    plain = predicted(tiny_spec(), Replayed(peaks=peaks, outside=0), H200)
    padded = predicted(tiny_spec(), Replayed(peaks=peaks, outside=0, mask_bytes=64 * MIB), H200)
    assert padded.device.high >= plain.device.high + 64 * MIB
    assert not plain.notes
    assert "padding" in padded.notes[0]


def test_other_card_within_what_is_not_known_is_maybe(tiny_spec):
    # By the H200's context of 751 MiB it fits 24 GB; a V100's of 1,343 MiB would be too much.
    prediction = predicted(
        tiny_spec(), Replayed(peaks=_peaks(21_900, 21_900), outside=751 * MIB), H200
    )
    assert prediction.cards[24] == "maybe"
    assert prediction.cards[40] == "yes"


def test_measured_card_is_judged_by_its_own_constants(tiny_spec):
    prediction = predicted(
        tiny_spec(), Replayed(peaks=_peaks(141_000, 141_000), outside=751 * MIB), H200
    )
    assert prediction.fits(CARDS[141]) == "yes"
    assert prediction.fits(CARDS[141] - 5_000 * MIB) == "no"


def test_gpu_with_assumed_constants_has_a_wider_interval(tiny_spec):
    card = replace(H200, name="NVIDIA A10", total_bytes=CARDS[24], assumed=("kernels_bytes",))
    measured = predicted(
        tiny_spec(),
        Replayed(peaks=_peaks(21_900, 21_900), outside=751 * MIB),
        replace(card, assumed=()),
    )
    assumed = predicted(
        tiny_spec(), Replayed(peaks=_peaks(21_900, 21_900), outside=751 * MIB), card
    )
    assert measured.fits(CARDS[24]) == "yes"
    assert assumed.fits(CARDS[24]) != "yes"
    assert assumed.device.high > measured.device.high
