"""Cards whose constants were not measured."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.intervals import Replayed, predicted
from orchestrator.prediction.prediction import CARDS
from orchestrator.prediction.replay import ReplayedPeaks
from orchestrator.units import MIB
from tests.conftest import SpecFactory

H200 = load_gpu("h200")


def _replayed(mib: int) -> Replayed:
    peaks = ReplayedPeaks(
        allocated=mib * MIB, reserved=mib * MIB, reserved_upwards=mib * MIB, at_peak={}
    )
    return Replayed(peaks=peaks, outside=751 * MIB)


def test_other_card_within_what_is_not_known_is_maybe(tiny_spec: SpecFactory) -> None:
    # By the H200's context of 751 MiB it fits 24 GB; a V100's of 1,343 MiB would be too much.
    prediction = predicted(tiny_spec(), _replayed(21_900), H200)
    assert prediction.cards[24] == "maybe"
    assert prediction.cards[40] == "yes"


def test_measured_card_is_judged_by_its_own_constants(tiny_spec: SpecFactory) -> None:
    prediction = predicted(tiny_spec(), _replayed(141_000), H200)
    assert prediction.fits(CARDS[141]) == "yes"
    assert prediction.fits(CARDS[141] - 5_000 * MIB) == "no"


def test_gpu_with_assumed_constants_has_a_wider_interval(tiny_spec: SpecFactory) -> None:
    card = replace(H200, name="NVIDIA A10", total_bytes=CARDS[24], assumed=("kernels_bytes",))
    measured = predicted(tiny_spec(), _replayed(21_900), replace(card, assumed=()))
    assumed = predicted(tiny_spec(), _replayed(21_900), card)
    assert measured.fits(CARDS[24]) == "yes"
    assert assumed.fits(CARDS[24]) != "yes"
    assert measured.device is not None
    assert assumed.device is not None
    assert assumed.device.high > measured.device.high
