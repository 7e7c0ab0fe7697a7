"""One peer's search for a batch size, alone in a process: ``python peer.py NAME SPEC LARGEST``.

The last line printed is a JSON object: the micro-batch picked, and the seconds without imports.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import Trainer, TrainingArguments, default_data_collator

from jobs.finetuning.adapters import lora
from jobs.spec import TrialSpec, from_json
from jobs.trial import data, models
from tests.benchmarks.bare_training import plain_arguments

STEPS = 3
"""Optimizer steps at each size tried: the first one has no optimizer states yet."""
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def build_trainer(spec: TrialSpec, size: int, folder: str, **more: Any) -> Any:
    """The trial's model and data in a plain Trainer, for a few steps at a micro-batch."""
    few_steps = {
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": 1,
        "max_steps": STEPS,
        "output_dir": folder,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": DEVICE.type == "cpu",
        "disable_tqdm": True,
    }
    arguments = TrainingArguments(**{**plain_arguments(spec), **few_steps, **more})
    config = models.architecture_config(spec.model)
    dataset, collator = data.load(spec.data, spec.model.task, config, samples=size * STEPS, seed=42)
    return Trainer(
        model=build_model(spec, arguments),
        args=arguments,
        train_dataset=dataset,
        data_collator=collator,
    )


def build_model(spec: TrialSpec, arguments: Any) -> torch.nn.Module:
    """The trial's model, with its adapter if it has one."""
    model = models.build(spec.model, spec.settings.model_kwargs, DEVICE)
    hook = spec.settings.hooks.get("model")
    if hook is None:
        return model
    return lora(model, spec.model.task, arguments, **hook.arguments)


def accelerate(spec: TrialSpec, largest: int) -> int:
    """accelerate's decorator around the Trainer."""
    from accelerate.utils import find_executable_batch_size

    def train(batch_size: int) -> int:
        with TemporaryDirectory() as folder:
            build_trainer(spec, batch_size, folder).train()
        return batch_size

    search: Any = find_executable_batch_size(train, starting_batch_size=largest)
    return int(search())


def trainer(spec: TrialSpec, largest: int) -> int:
    """The Trainer's own auto_find_batch_size."""
    with TemporaryDirectory() as folder:
        built = build_trainer(spec, largest, folder, auto_find_batch_size=True)
        built.train()
        return int(built.state.train_batch_size)


def lightning(spec: TrialSpec, largest: int) -> int:
    """Lightning's BatchSizeFinder in its binary search."""
    pytorch: Any = importlib.import_module("lightning.pytorch")
    tuner: Any = importlib.import_module("lightning.pytorch.tuner")
    with TemporaryDirectory() as folder:
        built = build_trainer(spec, largest, folder)

        class Module(pytorch.LightningModule):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.batch_size = 8
                self.model = built.model

            def training_step(self, batch: Any, index: int) -> Any:
                return self.model(**batch).loss

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.AdamW(self.model.parameters(), fused=True)

            def train_dataloader(self) -> Any:
                collate = built.data_collator or default_data_collator
                return torch.utils.data.DataLoader(
                    built.train_dataset, batch_size=self.batch_size, collate_fn=collate
                )

        if built.args.gradient_checkpointing:
            built.model.gradient_checkpointing_enable({"use_reentrant": False})
        module = Module()
        runner = pytorch.Trainer(
            max_steps=STEPS,
            precision="bf16-mixed",
            logger=False,
            enable_checkpointing=False,
            default_root_dir=folder,
        )
        picked = tuner.Tuner(runner).scale_batch_size(
            module, mode="binsearch", steps_per_trial=STEPS, init_val=8
        )
    return int(picked or module.batch_size)


PEERS: dict[str, Callable[[TrialSpec, int], int]] = {
    "accelerate": accelerate,
    "trainer": trainer,
    "lightning": lightning,
}


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("spec", type=Path)
    parser.add_argument("largest", type=int)
    options = parser.parse_args()
    spec = from_json(TrialSpec, json.loads(options.spec.read_text()))
    began = time.perf_counter()
    picked = PEERS[options.name](spec, options.largest)
    print(json.dumps({"micro_batch": picked, "seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    main()
