"""TRL's own Trainers on tensors without data: their loss, and the pass of their reference.

TRL computes the loss in tiles of some thousand positions. Its kernels of triton work in place, so
with kernels that do nothing a trace sees the memory that a GPU would.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from accelerate.utils import convert_to_fp32

from jobs.loops.accumulated_loss import LossScale
from jobs.loops.meter import Listener
from jobs.spec import TrialSpec
from jobs.techniques.hooks import hook_name, service
from jobs.trackers.tracker import Phase
from orchestrator.prediction.streams.length_streams import MANY_TILES
from orchestrator.prediction.tracing.allocation_trace import AllocationRecorder
from orchestrator.prediction.tracing.fakes.fake_ranks import distributed
from orchestrator.prediction.tracing.rows.trl_batches import TrlBatches

_TRAINERS = {"trl_sft_loop": "sft_trainer", "trl_preference_loop": "dpo_trainer"}
"""Hook of a loop -> the service that makes its Trainer."""
_aten = torch.ops.aten


class TrlTrainer:
    """TRL's Trainer of a model without data."""

    def __init__(
        self,
        spec: TrialSpec,
        model: Any,
        arguments: Any,
        batches: TrlBatches,
        dtype: torch.dtype | None,
        recorder: AllocationRecorder,
    ) -> None:
        make = service(_TRAINERS[hook_name(spec, "loop")])
        for buffer in model.buffers():
            # A value beside it, such as that of Gemma's scale, would be copied as a real tensor.
            buffer.constant = None
        trainer = self._trainer = batches.follow(make, model, arguments)
        trainer.meter, trainer.loss_scale = _Phases(recorder), LossScale.as_declared(trainer)
        trainer.current_gradient_accumulation_steps = spec.accumulation
        self._rows_of_metrics = spec.measure.upkeep.compute_metrics_rows
        for own in (model, getattr(trainer, "ref_model", None)):
            if own is not None and dtype is not None:
                # As ``Accelerator.prepare_model`` does it.
                own.forward = _in_16_bits(own.forward, dtype)
        self._model = model
        if spec.world_size > 1 and spec.settings.deepspeed is None:
            with recorder.phase("share"):
                self._model = distributed(model, spec)

    def train(self, inputs: dict[str, Any]) -> None:
        """Run forward and backward."""
        trainer = self._trainer
        count = None
        if "labels" in inputs and trainer.model_accepts_loss_kwargs:
            count = torch.empty(())
        trainer.training_step(self._model, dict(inputs), count)

    def evaluate(self, inputs: dict[str, Any]) -> Any:
        """Run forward alone; the result has ``logits``, None if no metrics are computed of them."""
        trainer = self._trainer
        only_loss = self._rows_of_metrics is None or trainer.args.prediction_loss_only
        _, logits, _ = trainer.prediction_step(self._model, dict(inputs), only_loss)
        trainer.meter.phase("upkeep")
        return SimpleNamespace(logits=logits)


class _Phases(Listener):
    """Tells a recorder which pass a Trainer is in."""

    def __init__(self, recorder: AllocationRecorder) -> None:
        self._recorder = recorder
        self._entered = ExitStack()

    def phase(self, name: Phase) -> None:
        self._entered.close()
        if name in ("forward", "backward"):
            self._entered.enter_context(self._recorder.phase(name))


def _in_16_bits(forward: Callable[..., Any], dtype: torch.dtype) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", dtype=dtype):
            outputs = forward(*args, **kwargs)
        return convert_to_fp32(outputs)

    return run


class _LossKernel:
    """One of TRL's kernels of triton: launched on a grid, it reads a tile of logits."""

    def __init__(self, recorder: AllocationRecorder, *, writes: bool) -> None:
        self._recorder = recorder
        self._writes = writes

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self._launch

    def _launch(self, tile: torch.Tensor, *_: Any, **__: Any) -> None:
        self._recorder.launch("loss", tile, writes=self._writes)


@contextmanager
def trl_on_cuda(recorder: AllocationRecorder) -> Iterator[None]:
    """A context in which TRL computes as with triton on CUDA."""
    from trl.kernels import chunked_logprob
    from trl.trainer import dpo_trainer, utils

    passes = partial(_passes, recorder, chunked_logprob.TOKEN_CHUNK_SIZE)
    with (
        patch.multiple(
            chunked_logprob,
            _use_triton=lambda _: True,
            _forward_kernel=_LossKernel(recorder, writes=False),
            _backward_kernel=_LossKernel(recorder, writes=True),
            _addmm_fp32=_accumulate,
        ),
        patch.object(chunked_logprob, "range", passes, create=True),
        patch.object(chunked_logprob, "triton", SimpleNamespace(cdiv=lambda *_: 1), create=True),
        patch.object(utils, "_use_triton", lambda _: True),
        patch.object(dpo_trainer, "hash_module", lambda _: ""),
        patch.object(dpo_trainer.DPOTrainer, "_precompute_ref_logps", _without_data),
    ):
        yield


def _passes(
    recorder: AllocationRecorder, tile: int, start: int, stop: int, step: int
) -> Iterator[int]:
    """Those of a loop, over tiles or in one. The last of many tiles is left out: it is smaller."""
    passes = range(start, stop, step)
    if len(passes) < MANY_TILES or step != tile:
        yield from passes
    else:
        for _ in recorder.repeated(round(stop / step)):
            yield start


def _accumulate(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """On CUDA a product of 16 bits is added to a sum of 32 bits at once."""
    if left.dtype is total.dtype:
        total.addmm_(left, right)
    else:
        _aten.addmm.dtype_out(total, left, right, total.dtype, out=total)


def _without_data(_: Any, rows: Any, *__: Any) -> Any:
    """The rows with log-probabilities of the reference, as if they were computed."""
    for name in ("ref_chosen_logps", "ref_rejected_logps"):
        rows = rows.add_column(name, [0.0] * len(rows))
    return rows
