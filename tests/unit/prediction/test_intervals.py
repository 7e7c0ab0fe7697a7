"""How far a measurement may lie from a replay."""

from dataclasses import fields, replace

import pytest

from orchestrator.prediction.gpus import Gpu, load_gpu
from orchestrator.prediction.intervals import (
    Replayed,
    allocated_interval,
    predicted,
    reserved_interval,
)
from orchestrator.prediction.margins import widened
from orchestrator.prediction.prediction import CARDS, Figure
from orchestrator.prediction.streams.replay import ReplayedPeaks
from orchestrator.units import MIB
from tests.conftest import build_tiny_spec

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


def test_reserved_interval_is_narrow_without_huge_blocks_and_never_below_the_tensors():
    # BERT-large: the largest block of a step is under 1 % of what is reserved.
    small, huge = (
        Replayed(peaks=_peaks(36_000, 37_000, largest_block=size * MIB), outside=0)
        for size in (256, 20_000)
    )
    reserved = reserved_interval(small)
    assert reserved.high - reserved.low < 0.05 * reserved.bytes
    assert reserved_interval(huge).low == allocated_interval(huge).low


def _predicted(peaks: ReplayedPeaks, gpu: Gpu = H200, outside: int = 751):
    replayed = Replayed(peaks=peaks, outside=outside * MIB)
    return predicted(build_tiny_spec(), replayed, gpu)


def test_llama_of_a_large_vocabulary_is_no_false_fit_on_80_gb():
    # A 1.2 B Llama with checkpointing at micro-batch 32: its replay, and what an H200 measured.
    prediction = _predicted(_peaks(67_541, 69_780, largest_block=LOGITS), outside=767)
    assert prediction.device.high < 86_057 * MIB <= prediction.device.most
    assert prediction.cards[80] == "tight"
    assert prediction.fits(CARDS[141]) == "yes"


def test_other_orders_of_unequal_rows_widen_the_interval():
    own, other = _peaks(850, 1000), _peaks(900, 1300)
    replayed = Replayed(peaks=own, orders=(other,), trial=_peaks(800, 950), outside=751 * MIB)
    prediction = predicted(build_tiny_spec(), replayed, H200)
    assert prediction.device.bytes == 1751 * MIB
    assert prediction.device.high > 2051 * MIB
    assert prediction.allocated.high > 900 * MIB
    assert prediction.trial_device.bytes == 1701 * MIB
    assert "expandable_segments" in prediction.notes[0]
    large = replace(replayed, peaks=_peaks(850, 1000, largest_block=200 * MIB))
    assert not predicted(build_tiny_spec(), large, H200).notes


def test_margin_of_a_technique_widens_every_figure():
    replayed = Replayed(peaks=_peaks(850, 1000), trial=_peaks(800, 950), outside=751 * MIB)
    spec = build_tiny_spec({"experts": "batched_mm"})
    exact = predicted(spec, replayed, H200)
    wider = widened(exact, spec, ())
    figures = [
        field.name for field in fields(exact) if isinstance(getattr(exact, field.name), Figure)
    ]
    assert figures == ["allocated", "reserved", "device", "trial_device"]
    for name in figures:
        before, after = getattr(exact, name), getattr(wider, name)
        assert after == replace(before, low=int(0.9 * before.low), high=int(1.1 * before.high))


@pytest.mark.parametrize(
    ("base", "name", "is_wider"),
    [
        ("bnb_8bit", None, True),
        ("bnb_8bit", "a-trained-model", False),
        ("bnb_8bit(llm_int8_threshold=0)", None, False),
        ("bnb_4bit", None, False),
    ],
)
def test_random_weights_may_have_many_outliers_in_8_bits(base, name, is_wider):
    spec = build_tiny_spec({"adapter": "lora_r8", "base": base})
    spec = replace(spec, model=replace(spec.model, name_or_path=name))
    exact = predicted(spec, Replayed(peaks=_peaks(850, 1000), outside=751 * MIB), H200)
    found = widened(exact, spec, ())
    assert (found.device.high > exact.device.high) is is_wider
    assert ("outliers" in " ".join(found.notes)) is is_wider


def test_other_card_within_what_is_not_known_is_maybe():
    # By the H200's context of 751 MiB it fits 24 GB; a V100's of 1,343 MiB would be too much.
    prediction = _predicted(_peaks(21_900, 21_900))
    assert (prediction.cards[24], prediction.cards[40]) == ("maybe", "yes")


def test_card_is_judged_by_its_own_constants_and_assumed_ones_have_a_wider_interval():
    prediction = _predicted(_peaks(141_000, 141_000))
    assert prediction.fits(CARDS[141]) == "yes"
    assert prediction.fits(CARDS[141] - 5_000 * MIB) == "no"
    card = replace(H200, name="NVIDIA A10", total_bytes=CARDS[24], assumed=())
    measured = _predicted(_peaks(21_900, 21_900), card)
    assumed = _predicted(_peaks(21_900, 21_900), replace(card, assumed=("kernels_bytes",)))
    assert measured.fits(CARDS[24]) == "yes"
    assert assumed.fits(CARDS[24]) != "yes"
    assert assumed.device.high > measured.device.high
