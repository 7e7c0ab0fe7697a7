"""Floating-point operations from shapes, and the MFU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.anatomy.time.efficiency import efficiency, flop, peak
from jobs.anatomy.trace import Call, Trace

PRODUCT = Call(operator="aten::mm", shapes=((100, 100), (100, 100)), recomputed=False)


@pytest.mark.parametrize(
    ("operator", "shapes", "expected"),
    [
        ("mm", ((2, 3), (3, 5)), 2 * 2 * 3 * 5),
        ("addmm", ((5,), (2, 3), (3, 5)), 2 * 2 * 3 * 5),
        ("bmm", ((7, 2, 3), (7, 3, 5)), 2 * 7 * 2 * 3 * 5),
        ("_scaled_dot_product_flash_attention", ((1, 4, 16, 8),) * 3, 2 * 2 * 4 * 16 * 16 * 8),
        (
            "_scaled_dot_product_flash_attention_backward",
            ((1, 4, 16, 8),) * 4,
            2 * 2 * 2 * 4 * 16 * 16 * 8,
        ),
        (
            "convolution_backward",
            ((1, 6, 4, 4), (1, 3, 8, 8), (6, 3, 2, 2)),
            3 * 2 * 6 * 4 * 4 * 3 * 2 * 2,
        ),
    ],
)
def test_flop_follows_from_shapes(operator: str, shapes: Any, expected: int) -> None:
    assert flop(Call(operator=f"aten::{operator}", shapes=shapes, recomputed=False)) == expected


def test_efficiency_leaves_recomputation_out_of_the_mfu() -> None:
    trace = Trace(calls=(PRODUCT, replace(PRODUCT, recomputed=True)))
    entries = efficiency(trace, device="NVIDIA H200", precision="bf16", step_seconds=1e-6)
    values = {entry.name: entry.value for entry in entries}
    assert values["model flop"] == values["recomputed flop"] == 2e6
    assert values["MFU"] == pytest.approx(2e12 / 989.4e12)


def test_peak_is_of_the_model_by_its_words() -> None:
    assert peak("NVIDIA H100 PCIe", "bf16") != peak("NVIDIA H100 80GB HBM3", "bf16")
    assert peak("NVIDIA B9999", "bf16") is None


def test_efficiency_counts_all_micro_batches_of_a_step() -> None:
    trace = Trace(calls=(PRODUCT,), repetitions=3.0)
    model, *_ = efficiency(trace, device="", precision="bf16", step_seconds=1.0)
    assert model.value == 3 * 2e6
