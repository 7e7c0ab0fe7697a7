"""One peer's search for a batch size, in a process of its own: ``python peer.py NAME SPEC.json LARGEST``.

The last line printed is a JSON object: the micro-batch it picked, and its seconds without imports.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import Trainer, TrainingArguments, default_data_collator

from jobs.spec import TrialSpec, spec_from_json
from jobs.techniques.axes.adapter import lora
from jobs.trial import data, models

STEPS = 3
"""Of each size tried: the first has no optimizer states yet."""
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def build_trainer(spec: TrialSpec, size: int, folder: str, **more: Any) -> Trainer:
    """The trial's model and data in a plain Trainer, for a few steps at a micro-batch."""
    given = {
        name: value
        for name, value in spec.recipe.training_arguments.items()
        if name != "tf32" or value
    }
    given |= {
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": 1,
        "max_steps": STEPS,
    }
    given |= {
        "output_dir": folder,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": DEVICE.type == "cpu",
    }
    arguments = TrainingArguments(**{**given, "disable_tqdm": True, **more})
    config = models.architecture_config(spec.model)
    dataset, collator = data.load(spec.data, spec.model.task, config, samples=size * STEPS, seed=42)
    return Trainer(
        model=build_model(spec, arguments),
        args=arguments,
        train_dataset=dataset,
        data_collator=collator,
    )


def build_model(spec: TrialSpec, arguments: Any) -> torch.nn.Module:
    model = models.build(spec.model, spec.recipe.model_kwargs, DEVICE)
    if "model" in spec.recipe.hooks:
        model = lora(model, spec.model.task, arguments, **spec.recipe.hooks["model"][1])
    return model


def accelerate(spec: TrialSpec, largest: int) -> int:
    """accelerate's decorator around the Trainer."""
    from accelerate.utils import find_executable_batch_size

    @find_executable_batch_size(starting_batch_size=largest)
    def search(batch_size: int) -> int:
        with TemporaryDirectory() as folder:
            build_trainer(spec, batch_size, folder).train()
        return batch_size

    return int(search())


def trainer(spec: TrialSpec, largest: int) -> int:
    """The Trainer's own auto_find_batch_size."""
    with TemporaryDirectory() as folder:
        made = build_trainer(spec, largest, folder, auto_find_batch_size=True)
        made.train()
        return int(made.state.train_batch_size)


def lightning(spec: TrialSpec, largest: int) -> int:
    """Lightning's BatchSizeFinder in its binary search."""
    from lightning.pytorch import LightningModule
    from lightning.pytorch import Trainer as LightningTrainer
    from lightning.pytorch.tuner import Tuner

    with TemporaryDirectory() as folder:
        made = build_trainer(spec, largest, folder)
        given = made.args

        class Module(LightningModule):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.batch_size, self.model = 8, made.model

            def training_step(self, batch: Any, index: int) -> torch.Tensor:
                return self.model(**batch).loss

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.AdamW(self.model.parameters(), fused=True)

            def train_dataloader(self) -> Any:
                collate = made.data_collator or default_data_collator
                return torch.utils.data.DataLoader(
                    made.train_dataset, batch_size=self.batch_size, collate_fn=collate
                )

        if given.gradient_checkpointing:
            made.model.gradient_checkpointing_enable({"use_reentrant": False})
        module = Module()
        runner = LightningTrainer(
            max_steps=STEPS,
            precision="bf16-mixed",
            logger=False,
            enable_checkpointing=False,
            default_root_dir=folder,
        )
        found = Tuner(runner).scale_batch_size(
            module, mode="binsearch", steps_per_trial=STEPS, init_val=8
        )
    return int(found or module.batch_size)


def deepspeed_training(spec: TrialSpec, largest: int) -> int:
    """What DeepSpeed's autotuner launches: the Trainer under the file and the micro-batch of its experiment."""
    given = {
        name: sys.argv[sys.argv.index(name) + 1]
        for name in ("--deepspeed", "--micro-batch", "--accumulation")
    }
    size, accumulation = int(given["--micro-batch"]), int(given["--accumulation"])
    more = {"gradient_accumulation_steps": accumulation, "max_steps": 3 * STEPS}
    with TemporaryDirectory() as folder:
        made = build_trainer(spec, size, folder, deepspeed=given["--deepspeed"], **more)
        if (
            "model" in spec.recipe.hooks
        ):  # the first launch is of ZeRO stage 3, which wants one dtype of all
            for adapter in (one for one in made.model.parameters() if one.requires_grad):
                adapter.data = adapter.data.to(torch.bfloat16)
        made.train()
    return size


PEERS: dict[str, Callable[[TrialSpec, int], int]] = {
    "accelerate": accelerate,
    "trainer": trainer,
    "lightning": lightning,
    "deepspeed_training": deepspeed_training,
}


def main() -> None:
    name, path, largest = [given for given in sys.argv[1:] if not given.startswith("--local_rank")][
        :3
    ]
    spec = spec_from_json(json.loads(Path(path).read_text()))
    began = time.perf_counter()
    picked = PEERS[name](spec, int(largest))
    print(json.dumps({"micro_batch": picked, "seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    main()
