"""The cards on which a trial runs."""

from dataclasses import replace

import pytest

from orchestrator.prediction.cards import OnCards, card_fit, on_cards
from orchestrator.prediction.gpus import card_of_size, load_gpu
from orchestrator.prediction.prediction import Elsewhere, Figure, Prediction
from orchestrator.units import GIB, MIB
from tests.conftest import build_tiny_spec


def _figure(gib: float) -> Figure:
    return Figure(bytes=int(gib * GIB), low=int(gib * GIB), high=int(gib * GIB))


def _prediction(gib: float) -> Prediction:
    return Prediction(
        trial_id="0123456789ab",
        choices={},
        allocated=_figure(gib - 1),
        reserved=_figure(gib - 0.75),
        device=_figure(gib),
        elsewhere=Elsewhere(least=int((gib - 1) * GIB), high=int((gib + 1) * GIB)),
        measured_bytes=load_gpu("h200").total_bytes,
    )


def test_card_with_assumed_constants_has_the_wider_interval():
    spec, prediction = build_tiny_spec(), _prediction(79.0)
    h100 = load_gpu("h100")
    assert h100.total_bytes < 80 * GIB
    assumed = replace(h100, assumed=("context_bytes",))
    assert card_fit(spec, prediction, h100).fit == "yes"
    assert card_fit(spec, prediction, assumed).fit == "tight"
    device = card_fit(spec, prediction, assumed).device
    assert (device.low, device.high) == (78 * GIB, 80 * GIB)


def test_measured_card_has_the_memory_of_its_own_context():
    h100 = load_gpu("h100")
    larger = replace(h100, context_bytes=h100.context_bytes + 700 * MIB)
    fit = card_fit(build_tiny_spec(), _prediction(79.0), larger)
    assert fit.device.bytes == 79 * GIB + 700 * MIB
    assert fit.fit == "tight"


def test_card_without_what_a_technique_needs_is_no_whatever_its_memory():
    spec = build_tiny_spec({"precision": "fp8_rowwise"})
    unknown = Prediction(trial_id="0123456789ab", choices={}, unknown="not traced")
    assert card_fit(spec, unknown, load_gpu("a100_80gb")).fit == "no"
    assert "8.9" in card_fit(spec, unknown, load_gpu("a100_80gb")).lacks
    assert card_fit(spec, unknown, load_gpu("l40s")).fit == "unknown"


def test_bf16_before_ampere_is_said_and_no_refusal():
    spec = build_tiny_spec({"precision": "bf16"})
    old = card_fit(spec, _prediction(8.0), load_gpu("v100_16gb"))
    assert (old.fit, old.lacks) == ("yes", "bf16 without tensor cores")
    assert card_fit(spec, _prediction(8.0), load_gpu("a10g")).lacks == ""


@pytest.mark.parametrize(("precision", "same"), [("fp32", True), ("bf16", False)])
def test_on_cards_traces_anew_only_for_other_attention_kernels(precision, same):
    spec = build_tiny_spec({"precision": precision}, evaluate_and_save=False)
    cards = [load_gpu("h200"), load_gpu("t4"), card_of_size(12 * GIB, "12GiB")]
    (own,) = on_cards([spec], cards)
    assert list(own.fits) == ["12GiB", "t4", "h200"]
    assert own.smallest == "12GiB"
    assert isinstance(own, OnCards)
    h200, t4 = (own.fits[name].device for name in ("h200", "t4"))
    assert (h200.bytes == t4.bytes) == same
