"""Predictions in words and as rows."""

import os
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from orchestrator.planning.config import load_config
from orchestrator.prediction.prediction import Elsewhere, Figure, Prediction
from orchestrator.reporting.prediction import labels, row, table
from orchestrator.units import GIB, MIB

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden/predictions.txt"
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
    typical_device=Figure(bytes=3 * GIB, low=2 * GIB, high=4 * GIB),
    worst_tokens=480,
    typical_tokens=58,
    elsewhere=Elsewhere(least=20 * GIB, high=26 * GIB),
    measured_bytes=143_771 * MIB,
    notes=("padded batches: the interval is wider",),
)


def test_table_is_the_recorded_text():
    words = {
        KNOWN.trial_id: "batch 8",
        UNKNOWN.trial_id: "batch 16",
        REFUSED.trial_id: "batch 32",
        RAGGED.trial_id: "batch 4",
    }
    text = table([KNOWN, UNKNOWN, REFUSED, RAGGED], words, {"transformers": "5.23.0"})
    if "RECORD_GOLDEN" in os.environ:
        GOLDEN.write_text(f"{text}\n", encoding="utf-8")
    assert f"{text}\n" == GOLDEN.read_text(encoding="utf-8")


def test_labels_name_the_axes_in_play(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text("model: {task: causal-lm, architecture: llama}\naxes: {micro_batch: [8, 16]}\n")
    words = labels([KNOWN, UNKNOWN], load_config(path))
    assert words == {KNOWN.trial_id: "batch 8", UNKNOWN.trial_id: "batch 16"}


@pytest.mark.parametrize("column", ["allocated_bytes", "device_high", "weights_bytes"])
def test_row_of_an_unknown_trial_has_no_figures(column):
    assert row(UNKNOWN)[column] is None
    assert isinstance(row(KNOWN)[column], int)


def test_row_says_which_cards_suffice():
    assert row(KNOWN)["fits_24_gb"] == "tight"
    assert row(UNKNOWN)["fits_24_gb"] == "unknown"


def test_row_names_the_versions_that_it_is_for():
    assert row(KNOWN)["transformers"] == version("transformers")
    assert row(KNOWN)["torch"] == version("torch")


def test_row_of_a_data_file_has_worst_and_typical_batch():
    values = row(RAGGED)
    assert (values["worst_tokens"], values["typical_tokens"]) == (480, 58)
    assert values["typical_device_bytes"] < values["device_bytes"]
    assert row(KNOWN)["typical_device_bytes"] is None
