"""The cards that a predicted trial fits."""

from dataclasses import replace

from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.prediction import CARDS, Bounds, Figure, Prediction, unknown
from orchestrator.units import GIB


def test_fits_says_yes_only_where_the_whole_interval_fits():
    prediction = Prediction(
        trial_id="0123456789ab",
        choices={"micro_batch": 8},
        allocated=Figure(bytes=20 * GIB, low=19 * GIB, high=21 * GIB),
        reserved=Figure(bytes=22 * GIB, low=21 * GIB, high=23 * GIB),
        device=Figure(bytes=23 * GIB, low=22 * GIB, high=24 * GIB),
    )
    assert prediction.cards == {16: "no", 24: "tight", 40: "yes", 48: "yes", 80: "yes", 141: "yes"}


def test_fits_without_figures_is_unknown():
    prediction = Prediction(trial_id="0123456789ab", choices={}, unknown="compiled")
    assert prediction.fits(CARDS[141]) == "unknown"


def test_fits_of_an_unknown_trial_follow_its_bounds():
    bounds = Bounds(least=20 * GIB, most=44 * GIB)
    prediction = Prediction(trial_id="0123456789ab", choices={}, unknown="compiled", bounds=bounds)
    between = {24: "unknown", 40: "unknown"}
    assert prediction.cards == {16: "no", **between, 48: "yes", 80: "yes", 141: "yes"}
    open_ended = replace(prediction, bounds=replace(bounds, most=None))
    assert set(open_ended.cards.values()) == {"no", "unknown"}


def test_refused_trial_fits_no_card_whatever_its_memory():
    prediction = Prediction(trial_id="0123456789ab", choices={}, refused="it raises")
    assert set(prediction.cards.values()) == {"no"}


def test_card_of_an_older_generation_is_no_yes_if_its_attention_needs_more():
    size = Figure(bytes=4 * GIB, low=4 * GIB, high=4 * GIB)
    figures = {"allocated": size, "reserved": size, "device": size}
    prediction = Prediction(trial_id="0123456789ab", choices={}, needs_ampere=True, **figures)
    assert prediction.cards[16] == "maybe"
    assert {fit for card, fit in prediction.cards.items() if card != 16} == {"yes"}


def test_error_that_a_trial_would_raise_refuses_it_and_a_missing_package_does_not(tiny_spec):
    adapter = {"adapter": "lora(r=8,target_modules=[Wqkv])"}
    (own,) = predict([tiny_spec(adapter)], load_gpu("h200"))
    assert "it raises: ValueError: PEFT does not support this adapter" in own.refused
    assert own.unknown == ""
    missing = unknown(tiny_spec(), ImportError("the package flash_attn seems to be not installed"))
    assert missing.refused == ""
    assert "flash_attn" in missing.unknown
