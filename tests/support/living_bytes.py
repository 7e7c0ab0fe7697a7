"""The bytes of tensors that live at once: in a step on the CPU, and in a trace."""

from typing import Any

import pytest
import torch
import transformers
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jobs.loops.accumulated_loss import LossScale
from jobs.loops.meter import Listener
from jobs.loops.trainer import metered
from orchestrator.prediction.streams.affine_stream import Allocation


class LivingBytes(TorchDispatchMode):
    """Counts the bytes of tensors that live after each operator."""

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.most = 0
        self._sizes: dict[int, tuple[StorageWeakRef, int]] = {}
        self._add(held)

    def _add(self, values: Any) -> None:
        for own in tree_leaves(values):
            if torch.is_tensor(own):
                storage = own.untyped_storage()
                self._sizes.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        self._sizes = {key: own for key, own in self._sizes.items() if not own[0].expired()}
        self._add(output)
        self.most = max(self.most, sum(nbytes for _, nbytes in self._sizes.values()))
        return output


def plain_trainer(setup: Any) -> Any:
    """The Trainer of a trial, without its measurements."""
    trainer = metered(transformers.Trainer)(
        model=setup.model,
        args=setup.arguments,
        train_dataset=setup.dataset,
        data_collator=setup.collator,
    )
    trainer.meter, trainer.loss_scale = Listener(), LossScale(trainer)
    return trainer


class _Stop(Exception):
    pass


def real_peak(trainer: Any, rows: Any) -> int:
    """Of a Trainer's first micro-batch, which has these rows."""
    batch = trainer.data_collator([trainer.train_dataset[row] for row in rows])
    # Each tensor of a batch is copied to a GPU, and two that are one here are two there.
    batch = {name: own.clone() if torch.is_tensor(own) else own for name, own in batch.items()}
    step, peaks = trainer.training_step, []

    def counted(model: Any, _: Any, count: Any) -> Any:
        models = [own for own in (model, getattr(trainer, "ref_model", None)) if own is not None]
        held = [[*own.parameters(), *own.buffers()] for own in models]
        with LivingBytes((held, batch, count)) as living:
            step(model, batch, count)
        peaks.append(living.most)
        raise _Stop

    trainer.training_step = counted
    with pytest.raises(_Stop):
        trainer.train()
    return peaks[0]


def living(stream: Any, held: int = 0) -> tuple[int, int]:
    """The most bytes that live, and those that live at the end."""
    sizes: dict[int, int] = {}
    most = held
    for event in stream.events:
        if isinstance(event, Allocation):
            is_of_gpu = event.formula != "tensor" or event.kind == "kernel workspaces"
            sizes[event.number] = 0 if is_of_gpu else event.integers[0]
            most = max(most, held + sum(sizes.values()))
        else:
            sizes.pop(event.number)
    return most, held + sum(sizes.values())
