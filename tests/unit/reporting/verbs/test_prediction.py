"""Predictions in words and as rows."""

from dataclasses import replace
from importlib.metadata import version

from orchestrator.analysis.card_prices import Cheapest
from orchestrator.prediction.cards import CardFit, OnCards
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.prediction import Elsewhere, Figure, Prediction
from orchestrator.reporting.verbs import prediction
from orchestrator.reporting.verbs.card_table import cards_row, cards_table
from orchestrator.reporting.verbs.prediction import row, table
from orchestrator.units import GIB, MIB
from tests.support.golden import assert_golden

KNOWN = Prediction(
    trial_id="0123456789ab",
    choices={"micro_batch": 8},
    allocated=Figure(bytes=20 * GIB, low=19 * GIB, high=21 * GIB),
    reserved=Figure(bytes=22 * GIB, low=21 * GIB, high=23 * GIB),
    device=Figure(bytes=23 * GIB, low=22 * GIB, high=24 * GIB),
    anatomy={"weights": 12 * GIB, "saved activations": 8 * GIB, "inputs": 1000},
)
UNKNOWN = Prediction(
    trial_id="ba9876543210",
    choices={"micro_batch": 16},
    unknown="torch.compile plans its own buffers",
)
REFUSED = Prediction(
    trial_id="aaaaaaaaaaaa",
    choices={"micro_batch": 32},
    refused="it raises: sequences have 2048 tokens, and the model has positions for 1024 (wpe)",
)
RAGGED = replace(
    KNOWN,
    trial_id="bbbbbbbbbbbb",
    choices={"micro_batch": 4},
    trial_device=Figure(bytes=25 * GIB, low=24 * GIB, high=26 * GIB),
    epoch_steps=1200,
    longest_tokens=480,
    elsewhere=Elsewhere(least=20 * GIB, high=26 * GIB),
    measured_bytes=143_771 * MIB,
    notes=("padded batches: the interval is wider",),
)


def test_table_is_the_recorded_text(monkeypatch):
    monkeypatch.setattr(prediction, "installed_versions", lambda: {"transformers": "5.23.0"})
    again = replace(UNKNOWN, trial_id="cccccccccccc", choices={"micro_batch": 64})
    predictions = [KNOWN, UNKNOWN, REFUSED, RAGGED, again]
    text = table(predictions, ["micro_batch"], evaluates=False, gpu=("l4", 23 * GIB))
    assert_golden("predictions.txt", text)


def test_cards_table_names_the_smallest_and_the_cheapest_card_by_micro_batch(monkeypatch):
    monkeypatch.setattr(prediction, "installed_versions", lambda: {"transformers": "5.23.0"})
    answers = [
        OnCards(
            prediction=own,
            fits={
                "t4": CardFit(fit=old, lacks="bf16 without tensor cores"),
                "l4": CardFit(fit=new),
            },
        )
        for own, old, new in ((KNOWN, "tight", "yes"), (UNKNOWN, "unknown", "unknown"))
    ]
    listed = [load_gpu("t4"), load_gpu("l4")]
    cheapest = [Cheapest(card="l4", per_hour=0.8, per_run=None), None]
    text = cards_table(answers, listed, ["micro_batch"], cheapest, evaluates=True)
    assert_golden("predicted_cards.txt", text)
    values = cards_row(answers[0])
    assert values["smallest_card"] == "l4"
    assert values["cards"]["t4"]["fits"] == "tight"


def test_row_has_figures_cards_and_versions_as_far_as_they_are_known():
    known, unknown, ragged = row(KNOWN), row(UNKNOWN), row(RAGGED)
    for column in ("allocated_bytes", "device_high", "weights_bytes"):
        assert unknown[column] is None
        assert isinstance(known[column], int)
    assert (known["fits_24_gb"], unknown["fits_24_gb"]) == ("tight", "unknown")
    for library in ("transformers", "torch"):
        assert known[library] == version(library)
    assert (ragged["epoch_steps"], ragged["longest_tokens"]) == (1200, 480)
    assert (ragged["trial_device_bytes"], known["trial_device_bytes"]) == (25 * GIB, None)
