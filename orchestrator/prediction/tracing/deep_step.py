"""A step of a model with many equal layers, traced with few of them."""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from orchestrator.prediction.streams.affine_stream import MicroBatches
from orchestrator.prediction.streams.deep_stream import deepened
from orchestrator.prediction.tracing.fake_step import FakeStep
from orchestrator.prediction.tracing.rows.batches import BatchShapes
from orchestrator.prediction.unsupported import is_fsdp

_FEW = 2
"""Periods of the layers that are traced, and one more. Layers that differ may take turns in a
period."""

_PLAIN = (bool, int, float, str, tuple, type(None))
"""Types of settings that decide what a module does."""


class DeepStep(FakeStep):
    """A step whose micro-batches need not run through all of the layers."""

    @property
    def shallow(self) -> FakeStep:
        return self if self._shallow is None else self._shallow[0]

    def micro_batches(self, batch: BatchShapes, *, samples: int, accumulated: bool) -> MicroBatches:
        """As ``FakeStep``, with other numbers of allocations."""
        if self._shallow is not None:
            few, more, times = self._shallow
            traces = [
                own.micro_batches(batch, samples=samples, accumulated=accumulated)
                for own in (few, more)
            ]
            self.picks |= few.picks | more.picks
            first, later = (
                deepened(short, long, times) if short and long else None
                for short, long in zip(*traces, strict=True)
            )
            if first is not None and (later is not None or not accumulated):
                return first, later
            self._shallow = None
        return super().micro_batches(batch, samples=samples, accumulated=accumulated)

    @functools.cached_property
    def _shallow(self) -> tuple[FakeStep, FakeStep, int] | None:
        """The steps of two models with fewer layers, and how many times what the second has more
        is missing to all layers; None if a model with fewer layers cannot stand for this one."""
        layers = getattr(self.model.config, "num_hidden_layers", None)
        whole = _layers(self.model, layers)
        period = next((own for own in range(1, len(whole) // 2) if whole[own:] == whole[:-own]), 0)
        # FSDP2 gathers the layer behind, so that the last two are not as the others.
        least = _FEW + is_fsdp(self.spec)
        times, rest = divmod(len(whole) - (least + 1) * period, period or 1)
        if not period or rest or (2 * least + 1) * period >= len(whole):
            return None
        try:
            few, more = (self._with_layers(own * period) for own in (least, least + 1))
        except Exception:  # a model may refuse fewer layers than it is described with
            return None
        for own in (few, more):
            shallow = _layers(own.model, own.model.config.num_hidden_layers)
            if shallow != whole[: len(shallow)]:
                return None
        return few, more, times

    def _with_layers(self, layers: int) -> FakeStep:
        model = self._model_spec
        model = replace(model, config={**model.config, "num_hidden_layers": layers})
        spec = replace(self.spec, model=model)
        return FakeStep(spec, self._gpu, self._known, (self.batches, model))


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
            if isinstance(value, _PLAIN) and not key.startswith(("_", "layer_i"))
        }
        yield path, name, type(module), settings
    for name, own in layer.named_parameters():
        yield name, own.shape, own.dtype, own.requires_grad, type(own)
