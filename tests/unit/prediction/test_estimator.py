"""The estimate without torch: the allocator, kernels' workspaces, streams, verdicts, and what is left unknown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import predict
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.affine_stream import Allocation, Free, Stream, between
from orchestrator.prediction.allocator import CachingAllocator, rounded, segment_bytes
from orchestrator.prediction.estimator import settled
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.kernels import (
    column_sum_bytes,
    efficient_attention_backward_bytes,
    layer_norm_backward_bytes,
)
from orchestrator.prediction.prediction import CARDS, Figure, Prediction
from orchestrator.prediction.replay import Outcome, Trial, replay
from orchestrator.prediction.unsupported import unknown
from orchestrator.reporting.prediction import row, table

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden/predictions.txt"
MIB = 2**20
H200 = load_gpu("h200")


def test_requests_and_segments_are_rounded_as_cuda_pytorch_rounds_them() -> None:
    assert [rounded(size) for size in (1, 512, 513)] == [512, 512, 1024]
    assert [segment_bytes(size) // MIB for size in (512, MIB, MIB + 512, 10 * MIB, 11 * MIB)] == [
        2,
        2,
        20,
        10,
        12,
    ]


def test_a_remainder_too_small_to_keep_counts_as_allocated() -> None:
    # BERT's word embeddings: 119.23 MiB lie in a segment of 120 MiB, whose rest is under 1 MiB.
    allocator = CachingAllocator()
    allocator.allocate(30522 * 1024 * 4)
    assert allocator.allocated == allocator.reserved == 120 * MIB


def test_the_smallest_cached_block_that_fits_is_taken() -> None:
    allocator = CachingAllocator()
    kept = [allocator.allocate(size * MIB) for size in (30, 20, 40)]
    for block in kept:
        allocator.free(block)
    allocator.allocate(18 * MIB)
    assert (allocator.allocated, allocator.reserved) == (18 * MIB, 90 * MIB)
    allocator.allocate(30 * MIB)
    assert allocator.reserved == 90 * MIB


@pytest.mark.parametrize("upwards", [True, False])
def test_of_equal_blocks_the_lowest_address_is_taken(upwards: bool) -> None:
    allocator = CachingAllocator(upwards=upwards)
    older, newer = allocator.allocate(30 * MIB), allocator.allocate(30 * MIB)
    allocator.free(older)
    allocator.free(newer)
    assert allocator.allocate(30 * MIB) is (older if upwards else newer)


@given(st.lists(st.tuples(st.integers(1, 40 * MIB), st.booleans()), max_size=60))
def test_allocated_is_what_lives_and_everything_freed_can_be_had_again(
    requests: Sequence[tuple[int, bool]],
) -> None:
    allocator, living = CachingAllocator(), []
    for nbytes, stays in requests:
        block = allocator.allocate(nbytes)
        assert block is not None
        assert block.size >= nbytes
        if stays:
            living.append(block)
        else:
            allocator.free(block)
        assert allocator.allocated == sum(block.size for block in living) <= allocator.reserved
    for block in living:
        allocator.free(block)
    assert allocator.allocated == 0
    free = [block for pool in allocator._free.values() for *_, block in pool]
    assert sum(block.size for block in free) == allocator.reserved == allocator.peak_reserved
    assert all(block.previous is None and block.next is None for block in free)


@pytest.mark.parametrize(
    ("rows", "columns", "mib"),
    # Seen on the H200 as what a bias gradient adds to the peak of BERT-large.
    [
        (2048, 1024, 16),
        (4096, 1024, 32),
        (8192, 1024, 64),
        (32768, 1024, 132),
        (4096, 4096, 128),
        (128, 1024, 0),
    ],
)
def test_a_column_sum_over_many_rows_takes_a_buffer(rows: int, columns: int, mib: int) -> None:
    assert column_sum_bytes(H200, rows, columns, 1, columns, 1, 0) == mib * MIB


@pytest.mark.parametrize(
    ("rows", "width", "partial_rows"),
    # Swin's first stage; one row too few; more blocks than a grid has; rows as wide as a large model's.
    [(32 * 56**2, 96, 3136), (2**16, 96, 0), (2**22, 96, 2**15 // 3), (2**17, 4096, 0)],
)
def test_a_layer_norm_over_very_many_rows_sums_by_parts(
    rows: int, width: int, partial_rows: int
) -> None:
    assert layer_norm_backward_bytes(H200, rows, width, 4) == 4 * width * partial_rows


@pytest.mark.parametrize("element", [2, 4])
def test_short_rows_take_whole_tiles_of_attention(element: int) -> None:
    # Swin's windows of 49 pixels, 32 channels a head: 64 × 64 each, which is what its reserved memory shows.
    heads = 6400 * 3
    taken = efficient_attention_backward_bytes(H200, 6400, 3, 49, 49, 32, element)
    assert taken == 4 * heads * (49 * element // 2 + 64 * 64 + 4)


def test_a_row_sum_takes_none() -> None:
    assert column_sum_bytes(H200, 8192, 1024, 0, 1024, 1, 1) == 0


def _stream(samples: int, *sizes: int) -> Stream:
    events = [
        Allocation(number=number, formula="tensor", integers=(size,), kind="saved activations")
        for number, size in enumerate(sizes, start=1)
    ]
    return Stream(events=(*events, Free(number=1)), samples=samples)


def test_sizes_are_affine_in_the_micro_batch() -> None:
    low, high = _stream(2, 300, 50), _stream(8, 900, 50)
    middle = between(low, high, 4)
    assert middle is not None
    assert middle.events == _stream(4, 500, 50).events
    assert between(low, _stream(8, 900), 4) is None


def test_the_peak_is_that_of_a_step_which_finds_optimizer_states() -> None:
    tensor = {"formula": "tensor", "integers": (64 * MIB,)}
    nothing = Stream(events=())
    states = Stream(events=(Allocation(number=1, kind="optimizer states", **tensor),))  # type: ignore[arg-type]
    weights = Stream(events=(Allocation(number=1, kind="weights", **tensor),))  # type: ignore[arg-type]
    trial = Trial(
        model=weights,
        first=_stream(1, 96 * MIB),
        later=None,
        accumulation=1,
        first_update=states,
        update=nothing,
    )
    outcome = replay(trial, H200)
    assert outcome.peak_allocated == 224 * MIB
    assert outcome.at_peak == {
        "weights": 64 * MIB,
        "optimizer states": 64 * MIB,
        "saved activations": 96 * MIB,
    }


GIB = 2**30
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


@pytest.mark.parametrize(("otherwise", "likely"), [(1010, 1000), (1100, 1050), (900, 950)])
def test_where_the_order_of_segments_makes_a_difference_neither_is_likelier(
    otherwise: int, likely: int
) -> None:
    outcome = Outcome(
        peak_allocated=900 * MIB,
        peak_reserved=1000 * MIB,
        reserved_otherwise=otherwise * MIB,
        at_peak={},
    )
    reserved = settled(outcome)
    assert reserved.bytes == likely * MIB
    assert reserved.low < min(1000, otherwise) * MIB
    assert reserved.high > max(1000, otherwise) * MIB


def test_a_card_is_named_only_when_the_whole_interval_fits() -> None:
    verdicts = {card: KNOWN.fits(size) for card, size in CARDS.items()}
    assert verdicts == {16: "no", 24: "tight", 40: "yes", 48: "yes", 80: "yes", 141: "yes"}
    assert UNKNOWN.fits(CARDS[141]) == "unknown"


def test_predictions_in_words() -> None:
    text = table(
        [KNOWN, UNKNOWN], {KNOWN.trial_id: "micro_batch=8", UNKNOWN.trial_id: "micro_batch=16"}
    )
    assert text + "\n" == GOLDEN.read_text(encoding="utf-8")
    assert row(UNKNOWN)["allocated_bytes"] is None
    assert row(KNOWN)["fits_24_gb"] == "tight"


def test_what_cannot_be_known_is_said_to_be_unknown() -> None:
    trials = {
        axis: {
            trial.choices[axis]: unknown(trial)
            for trial in plan(load_config(ROOT / "configs" / name)).trials
        }
        for axis in ("compile", "attention", "offload", "optimizer", "activations")
        for name in ("all_techniques.yaml",)
    }
    assert {name for name, reason in trials["compile"].items() if not reason} == {"none"}
    assert trials["attention"]["flash_attention_2"]
    assert trials["offload"]["zero3_nvme_both"]
    assert trials["optimizer"]["galore_adamw"]
    assert trials["activations"]["checkpoint_offload"]


def test_a_calibration_replaces_the_constants_it_holds(tmp_path: Path) -> None:
    file = tmp_path / "gpus.yaml"
    file.write_text(
        yaml.safe_dump([{"device": "NVIDIA L4", "multiprocessors": 58, "flops_per_second": {}}])
    )
    assert load_gpu(str(file)) == replace(
        H200, name="NVIDIA L4", multiprocessors=58, source=str(file)
    )
    with pytest.raises(ValueError, match="valid choices: h200"):
        load_gpu("h2000")


@pytest.mark.parametrize("wrong", [("--gpu", "h2000"), ("--trial", "zzz")])
def test_wrong_names_end_with_status_2(
    wrong: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict.main([str(ROOT / "configs/vit.yaml"), *wrong]) == 2
    assert wrong[1] in capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from orchestrator import predict; predict.command_line();"
        "print(sorted({'ray', 'torch', 'transformers', 'pandas', 'pyarrow', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
