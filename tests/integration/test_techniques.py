"""Techniques and tasks, trained for real on the CPU: what ran was asked for."""

import json
import subprocess
from dataclasses import replace
from typing import Any

import pytest
import yaml

from jobs import self_process
from jobs.isolation.build_ops import remove_abandoned_locks
from jobs.record import Outcome, TrialRecord
from jobs.spec import ModelSpec, Task, TrialSpec
from tests.conftest import build_tiny_spec
from tests.integration.conftest import Run
from tests.support.commands import ROOT

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

TASKS: dict[str, tuple[Task, str, dict[str, Any]]] = yaml.safe_load(
    (ROOT / "tests/golden/tasks.yaml").read_text()
)


@pytest.fixture(scope="module")
def plain(run: Run) -> TrialRecord:
    """The trial with every axis at its default."""
    return run({})


def with_model(spec: TrialSpec, **config: Any) -> TrialSpec:
    """The same trial of a model with some of its configuration changed."""
    return replace(spec, model=replace(spec.model, config={**spec.model.config, **config}))


def test_default_is_plain_fp32_training(plain):
    row = plain.measurements
    for column in ("matmul_dtype", "parameter_dtypes", "optimizer_state_dtypes"):
        assert row[column] == "float32"
    assert (row["autocast"], row["tf32"], row["checkpointed_layers"]) == ("off", False, 0)
    assert (row["optimizer_class"], row["optimizer_implementation"]) == ("torch.AdamW", "fused")
    assert row["parameters_trainable"] == row["parameters_total"]
    assert row["dataloader_workers"] == 0
    assert "zero_stage" not in row
    assert "compiled_graphs" not in row


EFFECTIVE = (ROOT / "tests/golden/effective.txt").read_text().splitlines()[2:]


@pytest.mark.parametrize("case", EFFECTIVE)
def test_technique_is_in_effect(case, run):
    choices, effective = map(yaml.safe_load, case.split(" -> "))
    record = run(with_model(build_tiny_spec(choices), **NO_DROPOUT))
    assert {name: record.measurements[name] for name in effective} == effective


@pytest.mark.parametrize(
    ("optimizer", "name"),
    [("adamw_bnb_8bit", "bitsandbytes.AdamW"), ("adam8bit_decay_groups", "bitsandbytes.Adam8bit")],
)
def test_8_bit_optimizers_keep_8_bit_states(optimizer, name, run):
    # bitsandbytes keeps tensors under 4096 elements, and embeddings, in 32 bits.
    wide = {"hidden_size": 64, "intermediate_size": 256}
    record = run(with_model(build_tiny_spec({"optimizer": optimizer}), **wide))
    usual = run(with_model(build_tiny_spec(), **wide))
    assert record.measurements["optimizer_class"] == name
    assert "uint8" in record.measurements["optimizer_state_dtypes"].split(", ")
    assert (
        record.measurements["optimizer_state_bytes"]
        < 0.6 * usual.measurements["optimizer_state_bytes"]
    )


def test_checkpointing_saves_memory_and_keeps_losses(run):
    kept = run({"micro_batch": 32})
    recomputed = run({"micro_batch": 32, "activations": "checkpoint"})
    assert recomputed.measurements["checkpointed_layers"] > 0
    assert (
        recomputed.measurements["peak_allocated_bytes"]
        < 0.8 * kept.measurements["peak_allocated_bytes"]
    )
    assert recomputed.steps["loss"] == kept.steps["loss"]


def test_worker_processes_keep_losses(run, plain):
    record = run({"dataloader": "workers_2_prefetch_4"})
    assert record.measurements["dataloader_workers"] == 2
    assert record.steps["loss"] == plain.steps["loss"]


@pytest.mark.parametrize("loop", ["trainer", "accelerate"])
def test_accumulation_trains_as_the_whole_batch(loop, run):
    # A language model, because the Trainer does not scale the loss of BERT's classification.
    task, architecture, config = TASKS["causal language model"]
    model = ModelSpec(task=task, architecture=architecture, config=config)
    whole, split = (
        run(replace(build_tiny_spec({"loop": loop, **batch}), model=model))
        for batch in ({"micro_batch": 8}, {"micro_batch": 2, "accumulation": 4})
    )
    assert split.steps["loss"] == pytest.approx(whole.steps["loss"], rel=1e-4)
    assert split.spec.effective_batch == whole.spec.effective_batch
    assert split.measurements["peak_allocated_bytes"] < whole.measurements["peak_allocated_bytes"]


def test_compiled_graphs_are_counted(run, plain):
    record = run({"compile": "aot_eager"})
    assert record.measurements["compiled_graphs"] >= 1
    assert record.measurements["compile_graph_breaks"] == 0
    assert record.measurements["compile_seconds"] > 0
    assert record.steps["loss"] == pytest.approx(plain.steps["loss"], rel=1e-4)


@pytest.fixture(scope="module")
def built_ops() -> None:
    """DeepSpeed's ops, built before any trial begins, as a sweep does it. What a killed test run
    left is removed, so that no trial waits for it.
    """
    remove_abandoned_locks(begun_since=0.0)
    command = self_process.command("jobs.isolation.build_ops", "cpu_adam")
    built = subprocess.run(command, capture_output=True, text=True)
    costs = json.loads(built.stdout)
    assert all(isinstance(cost, float) for cost in costs.values()), costs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("offload", "stage", "device"), [("zero2", 2, "none"), ("zero3_cpu_both", 3, "cpu")]
)
@pytest.mark.usefixtures("built_ops")
def test_deepspeed_is_in_effect(offload, stage, device, run, plain):
    row = run({"offload": offload}).measurements
    assert row["zero_stage"] == stage
    assert row["offload_optimizer_device"] == row["offload_parameter_device"] == device
    assert row["parameters_total"] == plain.measurements["parameters_total"]
    if device == "cpu":
        assert row["optimizer_class"] == "deepspeed.DeepSpeedCPUAdam"


CANNOT_RUN = (
    "{precision: tf32} -> capability>=8.0 -> needs a CUDA GPU; this node has none",
    "{precision: fp16} -> cuda -> needs a CUDA GPU; this node has none",
    "{attention: flash_attention_2} -> package:flash_attn -> "
    "the package flash_attn is not installed: pip install flash-attn",
)


@pytest.mark.parametrize("case", CANNOT_RUN)
def test_technique_that_cannot_run_here_says_why(case, run):
    choices, rule, reason = case.split(" -> ")
    record = run(yaml.safe_load(choices), outcome=Outcome.UNSUPPORTED)
    assert (record.rule, record.phase) == (rule, "requirements")
    assert record.reason.startswith(reason)


@pytest.mark.parametrize("name", TASKS)
def test_task_trains(name, run):
    task, architecture, config = TASKS[name]
    spec = replace(
        build_tiny_spec(), model=ModelSpec(task=task, architecture=architecture, config=config)
    )
    record = run(spec)
    assert len(record.steps["loss"]) == 4
    assert all(0 < loss < 100 for loss in record.steps["loss"])
    assert record.measurements["peak_allocated_bytes"] > 4 * record.measurements["parameters_total"]
    has_tokens = not task.startswith(("image-", "speech-"))
    assert ("tokens_per_second" in record.measurements) == has_tokens
