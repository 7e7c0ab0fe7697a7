"""Predictions in words and as rows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.planning.config import load_config
from orchestrator.prediction.prediction import Figure, Prediction
from orchestrator.reporting.prediction import labels, row, table
from orchestrator.units import GIB

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


def test_table_is_the_recorded_text() -> None:
    words = {KNOWN.trial_id: "batch 8", UNKNOWN.trial_id: "batch 16"}
    text = table([KNOWN, UNKNOWN], words)
    if "RECORD_GOLDEN" in os.environ:
        GOLDEN.write_text(f"{text}\n", encoding="utf-8")
    assert f"{text}\n" == GOLDEN.read_text(encoding="utf-8")


def test_labels_name_the_axes_in_play(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text("model: {task: causal-lm, architecture: llama}\naxes: {micro_batch: [8, 16]}\n")
    words = labels([KNOWN, UNKNOWN], load_config(path))
    assert words == {KNOWN.trial_id: "batch 8", UNKNOWN.trial_id: "batch 16"}


@pytest.mark.parametrize("column", ["allocated_bytes", "device_high", "weights_bytes"])
def test_row_of_an_unknown_trial_has_no_figures(column: str) -> None:
    assert row(UNKNOWN)[column] is None
    assert isinstance(row(KNOWN)[column], int)


def test_row_says_which_cards_suffice() -> None:
    assert row(KNOWN)["fits_24_gb"] == "tight"
    assert row(UNKNOWN)["fits_24_gb"] == "unknown"
