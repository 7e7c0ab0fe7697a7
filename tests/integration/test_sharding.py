"""Real trials of two ranks over gloo: they train as one process does, and end together."""

import sys
from dataclasses import replace

import pytest

from jobs.isolation.slot import Slot
from jobs.record import Outcome
from jobs.spec import Choice, ModelSpec, TrialSpec
from tests.conftest import build_tiny_spec
from tests.support.faults import with_fault
from tests.support.rank_faults import LATE, RankFault
from tests.support.tiny_decoders import MODEL

DECODER = replace(MODEL, architecture="qwen2")
"""It has no dropout, so that equal rows give equal losses."""
LOST = RankFault("rendezvous", 1, "lose_rendezvous", Outcome.TIMED_OUT, LATE[1], is_named=False)
"""Both ranks must look for the file at which they meet."""
PARENT = """\
from jobs.trial import run as trial
from tests.support.faults import patient, striking
trial.run = striking(trial.run)
from jobs.isolation import forkserver, ranks
ranks.wait_for = patient(ranks.wait_for)
forkserver.main()
"""


def trial(world_size: int, model: ModelSpec = DECODER, **choices: Choice) -> TrialSpec:
    spec = build_tiny_spec(choices, warmup_steps=2, steps=2)
    return replace(spec, model=model, world_size=world_size)


@pytest.mark.parametrize(
    ("sharding", "offload", "engine", "share"),
    [
        ("ddp", "none", "DDP", 1),
        ("zero1", "none", "DeepSpeed", 1),
        ("zero2", "none", "DeepSpeed", 1),
        # DeepSpeed draws the weights in another order where it partitions them as they are made.
        ("zero3", "zero3", "DeepSpeed", 0.5),
    ],
)
def test_two_ranks_train_as_one_process_that_accumulates(sharding, offload, engine, share, run):
    if engine == "DeepSpeed":
        pytest.importorskip("deepspeed")
    alone = run(trial(1, offload=offload, accumulation=2))
    record = run(trial(2, sharding=sharding))
    assert record.steps["loss"] == pytest.approx(alone.steps["loss"], rel=1e-4)
    row = record.measurements
    assert (row["world_size"], row["communication_backend"]) == (2, "gloo")
    assert row["sharding_engine"] == engine
    assert row["parameter_share"] == pytest.approx(share, rel=0.05)
    assert row["samples_per_second"] == 2 * row["samples_per_second_per_gpu"]
    assert len(row["rank_peak_allocated_bytes"]) == 2
    assert row["peak_allocated_bytes"] == max(row["rank_peak_allocated_bytes"])


def test_loss_that_ignores_the_count_of_all_ranks_is_corrected(run):
    # The Trainer alone would multiply BERT's loss, a mean already, by the number of ranks.
    bert = replace(build_tiny_spec({"sharding": "ddp"}), world_size=2)
    record = run(bert)
    assert record.measurements["accumulation_loss_scaling"] == "corrected"
    assert record.steps["loss"] == pytest.approx([0.7] * len(record.steps["loss"]), abs=0.05)


def test_rank_that_is_killed_ends_the_other_one_that_waits_for_it(run):
    spec = with_fault(trial(2, sharding="ddp"), "in_rank", rank=1, fault="kill")
    record = run(spec, Outcome.CRASHED)
    assert record.phase == "model"
    assert record.reason.startswith("rank 1: killed by SIGKILL")


def test_ranks_that_lose_the_file_at_which_they_meet_end_at_the_timeout():
    with Slot(1, parent_command=(sys.executable, "-c", PARENT)) as slot:
        record = slot.run(LOST.strike(trial(2, sharding="ddp")), 20.0)
        assert LOST.problem_of(record) == ""
        assert slot.run(trial(2, sharding="ddp"), 300.0).outcome is Outcome.OK


def test_fsdp2_without_a_gpu_is_unsupported_with_the_reason(run):
    record = run(trial(2, sharding="fsdp2_full"), Outcome.UNSUPPORTED)
    assert record.rule == "fsdp2"
    assert record.reason.startswith("Accelerate shards with FSDP2 on GPUs only")
