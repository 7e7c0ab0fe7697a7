"""A trial's model, data and optimizer, built as the job builds them, on tensors without data; its parts as streams."""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
import transformers
from accelerate.utils import convert_to_fp32
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.utils import import_utils

from jobs.loops import accelerate as accelerate_loop
from jobs.loops.arguments import training_arguments
from jobs.spec import TrialSpec
from jobs.trial import models
from jobs.trial.run import hook
from orchestrator.prediction import zero
from orchestrator.prediction.affine_stream import Stream
from orchestrator.prediction.allocation_trace import Recorder
from orchestrator.prediction.cuda_semantics import cuda_semantics
from orchestrator.prediction.gpus import Gpu

_ON_A_GPU_ONLY = (
    "tf32",
    "bf16",
    "fp16",
    "torch_compile",
    "torch_compile_backend",
    "torch_compile_mode",
    "deepspeed",
)
_PAGED_ELEMENTS = 100_000  # bitsandbytes keeps states of smaller parameters in plain memory


@dataclass(frozen=True, kw_only=True, slots=True)
class Updates:
    """An optimizer's step: the one that creates its states, those after, and the bytes of states in managed memory."""

    first: Stream
    later: Stream
    paged: tuple[int, ...]


class Rehearsal:
    """The model of one or more trials that differ only in batch and optimizer.

    Raises what building or running the trial would raise; operators whose result's shape depends on data raise
    ``torch._subclasses.fake_tensor.DynamicOutputShapeException``.
    """

    def __init__(self, spec: TrialSpec, gpu: Gpu) -> None:
        self._spec, self._gpu = spec, gpu
        self._recorder = Recorder()
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._arguments = _arguments(spec)
        with self._stage(), self._recorder.phase("build"):
            self.model = self._built()
            if spec.recipe.deepspeed is not None:
                zero.cast(self.model, precision(spec) or torch.float32)
        self.weights = self._recorder.stream()
        self._recorder.know_parameters(self.model.parameters())
        accelerate_loop.enable_checkpointing(self.model, self._arguments)
        if _by_trainer(spec) and hasattr(self._arguments, "use_cache"):
            config: Any = self.model.config
            config.use_cache = self._arguments.use_cache  # as the Trainer does on being made
        self.model.train()
        self._sample = _sample(spec, self.model.config)

    @contextmanager
    def _stage(self) -> Iterator[None]:
        with warnings.catch_warnings(), patch.object(torch.nn.Module, "_apply", _apply):
            warnings.simplefilter("ignore")
            with _untold(), cuda_semantics(self._gpu), self._fake, self._recorder:
                yield

    def _built(self) -> torch.nn.Module:
        spec, kwargs = self._spec.model, self._spec.recipe.model_kwargs
        device = torch.device("cpu")
        if spec.name_or_path is not None:
            auto = getattr(transformers, models.AUTO_CLASSES[spec.task])
            kwargs = {**kwargs, "dtype": getattr(torch, kwargs.get("dtype", "float32"))}
            model = auto.from_config(
                models.architecture_config(spec), trust_remote_code=spec.trust_remote_code, **kwargs
            )
        else:
            model = models.build(spec, kwargs, device)
        adapt = hook(self._spec, "model")
        return adapt(model, spec.task, self._arguments) if adapt else model  # type: ignore[no-any-return]

    @property
    def hidden_size(self) -> int:
        """The model's width, 0 where its configuration does not say."""
        return int(getattr(self.model.config, "hidden_size", 0) or 0)

    def micro_batches(self, samples: int, *, accumulated: bool) -> tuple[Stream, Stream | None]:
        """A micro-batch that meets no gradients and, where ``accumulated``, one that meets those of the first."""
        self.model.zero_grad()
        kept: list[Any] = []
        with self._stage():
            self._recorder.stream()
            self._micro_batch(samples, kept)
            first = self._recorder.stream(samples=samples)
            if not accumulated:
                return first, None
            self._micro_batch(samples, kept)
            return first, self._recorder.stream(samples=samples)

    def _micro_batch(self, samples: int, kept: list[Any]) -> None:
        """Forward and backward as the loop does them; what it allocates for the whole step is appended to ``kept``."""
        recorder = self._recorder
        with recorder.phase("inputs"):
            batch = {
                name: torch.empty((samples, *t.shape), dtype=t.dtype)
                for name, t in self._sample.items()
            }
            kept.append(batch)
        extra = self._loss_arguments(batch)
        with recorder.phase("forward"):
            loss = self._loss({**batch, **extra})
        with recorder.phase("backward"):
            loss.backward()
            del loss, extra

    def _loss_arguments(self, batch: dict[str, torch.Tensor]) -> dict[str, Any]:
        """The Trainer tells models that take it how many labels count."""
        if _by_trainer(self._spec) and _accepts_loss_arguments(self.model):
            return {"num_items_in_batch": torch.empty((), dtype=torch.int64)}
        return {}

    def _loss(self, inputs: dict[str, Any]) -> torch.Tensor:
        """The loss, its outputs raised to 32 bits after autocast as accelerate does."""
        dtype = precision(self._spec)
        if dtype is None or self._spec.recipe.deepspeed is not None:
            return self.model(**inputs).loss  # type: ignore[no-any-return]
        with torch.autocast("cpu", dtype=dtype):
            outputs = self.model(**inputs)
        outputs = convert_to_fp32(outputs)
        return outputs.loss  # type: ignore[no-any-return]

    def updates(self, spec: TrialSpec) -> Updates:
        """Clipping and the optimizer's step of ``spec``: the one that creates its states, and those after."""
        arguments = _arguments(spec)
        with self._stage(), _unmanaged():
            for parameter in self.model.parameters():
                parameter.grad = torch.empty_like(parameter) if parameter.requires_grad else None
            self._recorder.stream()
            with self._recorder.phase("update"):
                optimizer = self._optimizer(spec, arguments)
                self._update(spec, arguments, optimizer)
            paged = self._only_on_device(optimizer)
            first = self._recorder.stream()
            with self._recorder.phase("update"):
                self._update(spec, arguments, optimizer)
            later = self._recorder.stream()
        self.model.zero_grad()
        return Updates(first=first, later=later, paged=tuple(paged))

    def _optimizer(self, spec: TrialSpec, arguments: Any) -> torch.optim.Optimizer:
        if "bitsandbytes" in sys.modules:
            # Its record of which parameters keep 32-bit states is a singleton, and knows those of the last trial.
            sys.modules["bitsandbytes"].optim.GlobalOptimManager._instance = None
        make = hook(spec, "optimizer")
        if make is not None:
            optimizer = make(self.model, arguments)
        elif not _by_trainer(spec):
            optimizer = accelerate_loop.named_optimizer(self.model, arguments)
        else:
            trainer = transformers.Trainer(model=self.model, args=arguments)
            optimizer = trainer.create_optimizer()
        for group in optimizer.param_groups:
            # On a GPU torch.optim chooses its multi-tensor kernels itself.
            if "foreach" in group and group["foreach"] is None and not group.get("fused"):
                group["foreach"] = True
        return optimizer  # type: ignore[no-any-return]

    def _update(self, spec: TrialSpec, arguments: Any, optimizer: torch.optim.Optimizer) -> None:
        if _by_trainer(spec) and arguments.max_grad_norm:
            trained = [p for p in self.model.parameters() if p.grad is not None]
            torch.nn.utils.clip_grad_norm_(trained, arguments.max_grad_norm, foreach=True)
        optimizer.step()

    def _only_on_device(self, optimizer: Any) -> list[int]:
        """Leave out states that the allocator does not see; returns the sizes of those in managed memory.

        torch.optim counts steps on the host unless its kernels are fused; bitsandbytes pages large states.
        """
        paged = []
        for parameter, state in optimizer.state.items():
            fused = any(
                group.get("fused") or group.get("capturable") for group in optimizer.param_groups
            )
            for name, tensor in state.items():
                if not isinstance(tensor, torch.Tensor):
                    continue
                managed = getattr(optimizer, "is_paged", False) and name.startswith("state")
                if managed and parameter.numel() >= _PAGED_ELEMENTS:
                    paged.append(tensor.nbytes)
                    self._recorder.leave_out(tensor)
                elif name == "step" and not fused:
                    self._recorder.leave_out(tensor)
        return paged


def _untold() -> AbstractContextManager[Any]:
    """transformers makes every mask where it sees tensors without data; a real step leaves out those of no effect."""
    return patch.object(import_utils, "is_fake_tensor", lambda _: False, create=True)


@contextmanager
def _unmanaged() -> Iterator[None]:
    """bitsandbytes asks CUDA for managed memory; without a GPU its states are plain tensors."""
    try:
        from bitsandbytes import functional
    except ImportError:
        yield
        return

    def plain(*shape: int, dtype: torch.dtype = torch.float32, device: Any = None) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)

    with (
        patch.object(functional, "get_paged", plain),
        patch.object(functional, "fill", lambda *_: None),
    ):
        yield


def _apply(
    module: torch.nn.Module, function: Callable[[Any], Any], recurse: bool = True
) -> torch.nn.Module:
    """``Module._apply`` without its swap, which tensors without data refuse; moving them changes nothing."""
    for child in module.children() if recurse else ():
        _apply(child, function)
    for name, parameter in module._parameters.items():
        if parameter is None:
            continue
        with torch.no_grad():
            applied = function(parameter)
        if applied is not parameter:
            module._parameters[name] = torch.nn.Parameter(applied, parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = function(buffer)
    return module


def _by_trainer(spec: TrialSpec) -> bool:
    return spec.recipe.hooks["loop"][0] == "jobs.loops.trainer:train"


def precision(spec: TrialSpec) -> torch.dtype | None:
    """The dtype of autocast; None where there is none."""
    arguments = spec.recipe.training_arguments
    return (
        torch.bfloat16
        if arguments.get("bf16")
        else torch.float16
        if arguments.get("fp16")
        else None
    )


def _arguments(spec: TrialSpec) -> Any:
    """The trial's ``TrainingArguments``, without what only a GPU accepts."""
    kept = {k: v for k, v in spec.recipe.training_arguments.items() if k not in _ON_A_GPU_ONLY}
    plain = replace(spec, recipe=replace(spec.recipe, training_arguments=kept))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return training_arguments(plain, output_dir=folder, total_steps=3, deepspeed=None)


def _sample(spec: TrialSpec, config: Any) -> dict[str, torch.Tensor]:
    """One sample of the trial's data, for its names, shapes and dtypes."""
    from jobs.trial import data

    assert spec.data.synthetic is not None
    one = replace(spec.data, synthetic=replace(spec.data.synthetic, samples=1))
    dataset, _ = data.load(one, spec.model.task, config, samples=1, seed=0)
    return {name: torch.as_tensor(value) for name, value in dataset[0].items()}


def _accepts_loss_arguments(model: Any) -> bool:
    """The Trainer's own test: ``accepts_loss_kwargs``, else whether ``forward`` takes any keyword."""
    import inspect

    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    told = getattr(inner, "accepts_loss_kwargs", None)
    if told is not None:
        return bool(told)
    parameters = inspect.signature(inner.forward).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
