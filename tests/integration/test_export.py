"""Exported files train as the trial did: executed without this project's code, their losses are the trial's own."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import multiprocessing
import os
import runpy
import socket
import sys
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import transformers
import yaml

from jobs.isolation.preload import environment
from jobs.record import Outcome, TrialRecord, record_from_json, record_to_json
from jobs.spec import (
    DatasetFile,
    DataSpec,
    ModelSpec,
    SyntheticData,
    TrialSpec,
    spec_from_json,
    to_json,
)
from jobs.trial.models import AUTO_CLASSES
from orchestrator.export import script
from orchestrator.export.writing import export
from tests.conftest import TINY_BERT, SpecFactory

LIBRARIES = ["torch", "datasets", "transformers.trainer", "accelerate", "peft", "bitsandbytes"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def processes() -> Iterator[ForkServerContext]:
    """Where fresh processes come from, with the libraries imported once for all of them."""
    before = dict(os.environ)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ |= {
            **environment(1),
            "MASTER_PORT": str(free.getsockname()[1]),
            "CUDA_VISIBLE_DEVICES": "",
        }
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    yield context
    os.environ.clear()
    os.environ |= before


def in_a_process(context: ForkServerContext, work: Callable[..., None], *arguments: Any) -> None:
    """Run ``work`` in a process of its own; its output is the failure's message."""
    log: Path = arguments[-1] / "log.txt"
    process = context.Process(target=_quietly, args=(log, work, arguments))
    process.start()
    process.join(240)
    process.kill()  # one that hangs must not outlive its test
    process.join()
    assert process.exitcode == 0, log.read_text()[-4000:]


def _quietly(log: Path, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        work(*arguments)


def _measure(spec: dict[str, Any], folder: Path) -> None:
    from jobs.trial import run

    record = run.run(spec_from_json(spec), lambda phase: None, isolation="fresh", scratch=folder)
    (folder / "record.json").write_text(json.dumps(record_to_json(record)))


def _train(arguments: list[str], folder: Path) -> None:
    sys.modules |= {
        name: None for name in [*sys.modules] if name.startswith(("jobs", "orchestrator"))
    }  # type: ignore
    with open(folder / "printed.txt", "w") as printed, contextlib.redirect_stdout(printed):
        sys.argv = ["train.py", *arguments]
        runpy.run_path(str(folder / "train.py"), run_name="__main__")


def trained_twice(
    context: ForkServerContext, spec: TrialSpec, folder: Path
) -> tuple[TrialRecord, float]:
    """The trial's record, and the mean loss of its exported files over as many steps."""
    in_a_process(context, _measure, to_json(spec), folder)
    record = record_from_json(json.loads((folder / "record.json").read_text()))
    assert record.outcome is Outcome.OK, record.reason
    exported = folder / "exported"
    export(spec, exported, label="a test")
    in_a_process(
        context,
        _train,
        ["--max_steps", str(len(record.steps["loss"])), "--disable_tqdm", "true"],
        exported,
    )
    figures = json.loads((exported / "printed.txt").read_text().splitlines()[-1])
    return record, figures["train_loss"]


CASES: dict[str, dict[str, Any]] = {
    "accumulated_checkpointed": {
        "accumulation": 4,
        "activations": "checkpoint",
        "precision": "bf16",
    },
    "lora_and_8bit_adam_by_hand": {"adapter": "lora_r8", "optimizer": "adam8bit_decay_groups"},
    "asynchronous_unmasked": {"loop": "trainer_async", "attention": "unmasked"},
    "adamw_bnb_8bit": {"optimizer": "adamw_bnb_8bit", "dataloader": "unpinned"},
    "accelerate_loop": {
        "loop": "accelerate",
        "optimizer": "adafactor",
        "accumulation": 2,
        "activations": "checkpoint",
    },
    "zero2_offload": {"offload": "zero2_cpu_optimizer", "precision": "bf16"},
}


@pytest.mark.parametrize("case", CASES)
def test_exported_files_train_as_the_trial_did(
    case: str, processes: ForkServerContext, tiny_spec: SpecFactory, tmp_path: Path
) -> None:
    record, loss = trained_twice(processes, tiny_spec(CASES[case]), tmp_path)
    losses = record.steps["loss"]
    assert loss == pytest.approx(sum(losses) / len(losses), rel=1e-3)
    assert len(set(losses)) > 1


TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
MODELS = {
    "causal-lm": ModelSpec(
        task="causal-lm", architecture="llama", config={**TINY, "vocab_size": 128}
    ),
    "masked-lm": ModelSpec(
        task="masked-lm", architecture="bert", config={**TINY, "vocab_size": 128}
    ),
    "image-classification": ModelSpec(
        task="image-classification",
        architecture="vit",
        config={**TINY, "image_size": 32, "patch_size": 16},
    ),
}


@pytest.mark.parametrize("task", MODELS)
def test_other_tasks_and_padding_too(
    task: str, processes: ForkServerContext, tiny_spec: SpecFactory, tmp_path: Path
) -> None:
    data = DataSpec(synthetic=SyntheticData(sequence_length=16, samples=16, padding=0.3))
    spec = dataclasses.replace(tiny_spec(inspect=False), model=MODELS[task], data=data)
    record, loss = trained_twice(processes, spec, tmp_path)
    assert loss == pytest.approx(sum(record.steps["loss"]) / len(record.steps["loss"]), rel=1e-4)


def test_the_users_own_checkpoint_and_dataset_are_read_as_they_were(
    processes: ForkServerContext, tiny_spec: SpecFactory, tmp_path: Path
) -> None:
    config = transformers.BertConfig(**TINY_BERT)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "checkpoint")
    rows = [{"tokens": [(7 * n + k) % 128 for k in range(16)], "labels": n % 2} for n in range(16)]
    (tmp_path / "rows.json").write_text("\n".join(json.dumps(row) for row in rows))
    file = DatasetFile(
        path=str(tmp_path / "rows.json"),
        format="json",
        columns={"input_ids": "tokens", "labels": "labels"},
    )
    model = ModelSpec(task="sequence-classification", name_or_path=str(tmp_path / "checkpoint"))
    spec = dataclasses.replace(tiny_spec(inspect=False), model=model, data=DataSpec(file=file))
    record, loss = trained_twice(processes, spec, tmp_path)
    assert loss == pytest.approx(sum(record.steps["loss"]) / len(record.steps["loss"]), rel=1e-4)


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing:FutureWarning")
def test_settings_load_with_the_libraries_own_loaders(
    tiny_spec: SpecFactory, tmp_path: Path
) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    spec = tiny_spec(
        {
            "precision": "bf16",
            "activations": "checkpoint",
            "accumulation": 4,
            "optimizer": "adafactor",
        }
    )
    export(spec, tmp_path, label="a test", epochs=3)
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    (from_yaml,) = parser.parse_yaml_file(str(tmp_path / "training_arguments.yaml"))
    (from_json,) = parser.parse_json_file(str(tmp_path / "training_arguments.json"))
    assert from_yaml.to_dict() == from_json.to_dict()
    assert (from_yaml.gradient_accumulation_steps, from_yaml.bf16, from_yaml.num_train_epochs) == (
        4,
        True,
        3,
    )
    assert from_yaml.optim == "adafactor"
    assert load_config_from_file(str(tmp_path / "accelerate.yaml")).mixed_precision == "bf16"


def test_accelerate_is_told_of_deepspeed_and_not_of_precision_twice(
    tiny_spec: SpecFactory, tmp_path: Path
) -> None:
    export(tiny_spec({"offload": "zero3_nvme_both", "precision": "bf16"}), tmp_path, label="a test")
    told = yaml.safe_load((tmp_path / "accelerate.yaml").read_text())
    assert told["distributed_type"] == "DEEPSPEED"
    assert told["deepspeed_config"] == {
        "deepspeed_config_file": "deepspeed.json",
        "zero3_init_flag": True,
    }
    assert "mixed_precision" not in told
    assert "{nvme}" not in (tmp_path / "deepspeed.json").read_text()


def test_every_task_has_the_trials_own_class() -> None:
    assert script.AUTO_CLASSES == AUTO_CLASSES


def test_the_script_says_where_the_users_own_goes_and_what_accumulation_does(
    tiny_spec: SpecFactory,
) -> None:
    text = script.train_script(tiny_spec({"accumulation": 4}), "a test", peak_bytes=123)
    ast.parse(text)
    assert "YOUR MODEL" in text
    assert "YOUR DATASET" in text
    assert "# trainer.model_accepts_loss_kwargs = False" in text
    assert "model_accepts_loss_kwargs" not in script.train_script(tiny_spec(), "a test")
