"""A step of a model with many equal layers, traced with few of them."""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from jobs.spec import ModelSpec, TrialSpec
from jobs.techniques.axes.loop import enable_checkpointing
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.streams.affine_stream import MicroBatches, Stream
from orchestrator.prediction.streams.deep_stream import deepened
from orchestrator.prediction.tracing.cpu_arguments import cpu_arguments
from orchestrator.prediction.tracing.cuda.cuda_attention import Picks
from orchestrator.prediction.tracing.fake_step import FakeStep, batches_and_model
from orchestrator.prediction.tracing.known_results import KnownResults
from orchestrator.prediction.tracing.rows.batches import BatchShapes
from orchestrator.prediction.unsupported import is_fsdp

Built = dict[str, FakeStep]
"""By the model, with as many classes as its data has."""
_FEW = 2
"""Periods of the layers that are traced, and one more. Layers that differ may take turns in a
period. Where the last ones are not as the others, so many and one more, and then all."""

_PLAIN = (bool, int, float, str, tuple, type(None))
"""Types of settings that decide what a module does."""


class DeepStep:
    """A ``FakeStep`` whose micro-batches need not run through all of the layers.

    ``built``: the whole models so far of trials that build the same, which share their weights and
    updates.
    """

    def __init__(self, spec: TrialSpec, gpu: Gpu, known: KnownResults, built: Built) -> None:
        self.spec, self._gpu, self._known = spec, gpu, known
        self.batches, self._model_spec = batches_and_model(spec)
        self.picks: Picks = set()
        # FSDP2 gathers the layer behind, so that the last two are not as the others.
        self._few = _FEW + is_fsdp(spec)
        key = repr(self._model_spec)
        self._is_first = key not in built
        if self._is_first:
            built[key] = self._step(self._model_spec)
        else:
            _checkpoint_as(built[key].model, spec)
        self._whole = built[key]
        self.model, self.weights = self._whole.model, self._whole.weights
        self.trained, self.updates = self._whole.trained, self._whole.updates

    @property
    def shallow(self) -> FakeStep:
        """The step of a model with fewer of the same layers; of all layers if there is none."""
        return self._own if self._shallow is None else self._shallow[0]

    @functools.cached_property
    def _own(self) -> FakeStep:
        """The step of all layers."""
        return self._whole if self._is_first else self._step(self._model_spec)

    def evaluation(self) -> Stream:
        return self._own.evaluation()

    def micro_batches(self, batch: BatchShapes, *, samples: int, accumulated: bool) -> MicroBatches:
        """As ``FakeStep``, with other numbers of allocations."""
        steps = (self._own,) if self._shallow is None else self._shallow[:2]
        traces = [
            own.micro_batches(batch, samples=samples, accumulated=accumulated) for own in steps
        ]
        for own in steps:
            self.picks |= own.picks
        if self._shallow is None:
            return traces[0]
        first, later = (
            deepened(short, long, self._shallow[2]) if short and long else None
            for short, long in zip(*traces, strict=True)
        )
        if first is not None and (later is not None or not accumulated):
            return first, later
        self._few += 1
        if self._few <= _FEW + 1:
            del self._shallow
        else:
            self._shallow = None
        return self.micro_batches(batch, samples=samples, accumulated=accumulated)

    @functools.cached_property
    def _shallow(self) -> tuple[FakeStep, FakeStep, int] | None:
        """The steps of two models with fewer layers, and how many times what the second has more
        is missing to all layers; None if a model with fewer layers cannot stand for this one."""
        layers = getattr(self.model.config, "num_hidden_layers", None)
        whole = _layers(self.model, layers)
        period = next((own for own in range(1, len(whole) // 2) if whole[own:] == whole[:-own]), 0)
        times, rest = divmod(len(whole) - (self._few + 1) * period, period or 1)
        if not period or rest or (2 * self._few + 1) * period >= len(whole):
            return None
        try:
            few, more = (self._with_layers(own * period) for own in (self._few, self._few + 1))
        except Exception:  # a model may refuse fewer layers than it is described with
            return None
        for own in (few, more):
            shallow = _layers(own.model, own.model.config.num_hidden_layers)
            if shallow != whole[: len(shallow)]:
                return None
        return few, more, times

    def _with_layers(self, layers: int) -> FakeStep:
        model = self._model_spec
        return self._step(replace(model, config={**model.config, "num_hidden_layers": layers}))

    def _step(self, model: ModelSpec) -> FakeStep:
        spec = replace(self.spec, model=model)
        return FakeStep(spec, self._gpu, self._known, (self.batches, model))


def _checkpoint_as(model: Any, spec: TrialSpec) -> None:
    """Let a model that trials share checkpoint what this one does."""
    for module in model.modules():
        if hasattr(module, "gradient_checkpointing"):
            module.gradient_checkpointing = False
    enable_checkpointing(model, cpu_arguments(spec))


def _layers(model: nn.Module, number: int | None) -> list[list[Any]]:
    """What each of so many layers consists of: a list of modules, or several with as many."""
    lists = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == number
    ]
    return [
        [*itertools.chain(*(_parts(name, module[own]) for name, module in lists))]
        for own in range(number if lists and number else 0)
    ]


def _parts(path: str, layer: nn.Module) -> Iterator[object]:
    """Equal for layers that do the same: all but their number in the model."""
    for name, module in layer.named_modules():
        settings = {
            key: repr(value)
            for key, value in vars(module).items()
            if isinstance(value, _PLAIN) and not key.startswith(("_", "layer_i", "gradient_"))
        }
        yield path, name, type(module), settings, getattr(module, "gradient_checkpointing", False)
    for name, own in layer.named_parameters():
        yield name, own.shape, own.dtype, own.requires_grad, type(own)
