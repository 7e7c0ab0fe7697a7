"""Which trials share a trace, or a model, and what is computed once for many trials."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobs.spec import TrialSpec, to_json
from jobs.spec.library_settings import MODEL_PLACES
from orchestrator.prediction.streams.replay import ReplayedPeaks
from orchestrator.prediction.time.step_work import UPDATE_ARGUMENTS
from orchestrator.prediction.unsupported import unpredictable

if TYPE_CHECKING:
    from orchestrator.prediction.tracing.compiled_block import CompiledBlock
    from orchestrator.prediction.tracing.deep_step import Built
    from orchestrator.prediction.tracing.fakes.fake_update import Updates
    from orchestrator.prediction.tracing.known_results import KnownResults


@dataclass(frozen=True)
class Shared:
    """What is computed once for the trials of all models and GPUs."""

    is_likely: bool = False
    """Whether likely figures alone are asked for, which need one order of an epoch's rows."""
    updates: dict[tuple[str, str], Updates] = field(default_factory=dict)
    """Of each optimizer step, and of what it trains."""
    blocks: dict[str, CompiledBlock] = field(default_factory=dict)
    """By what decides their graph."""
    replays: dict[tuple[object, ...], ReplayedPeaks] = field(default_factory=dict)
    """By digest of the streams."""
    built: dict[str, Built] = field(default_factory=dict)
    """By ``built_key``."""

    @functools.cached_property
    def known(self) -> KnownResults:
        """The results of operators."""
        from orchestrator.prediction.tracing.known_results import KnownResults

        return KnownResults()


@functools.cache
def shared_in_process(*, is_likely: bool) -> Shared:
    """What a process that is asked again and again computes once."""
    return Shared(is_likely=is_likely)


_BATCH_ARGUMENTS = ("per_device_train_batch_size", "gradient_accumulation_steps")
_UNTRACED_ARGUMENTS = (*UPDATE_ARGUMENTS, *_BATCH_ARGUMENTS, "tf32", "accelerator_config")
"""Training arguments that do not change how a micro-batch runs through the model."""
_UNTRACED_HOOKS = ("optimizer", "partitioner")
"""Places of hooks that change only the update, or only compiled code."""
_UNTRACED_PREFIXES = ("dataloader_", "logging_")
_BUILDING_HOOKS = ("base", "loop", *MODEL_PLACES)


def model_key(spec: TrialSpec) -> str:
    """Equal for trials that share traces."""
    settings = to_json(spec.settings)
    hooks = {place: own for place, own in settings["hooks"].items() if place not in _UNTRACED_HOOKS}
    parts = [
        *_built(spec, settings, _UNTRACED_PREFIXES),
        hooks,
        to_json(spec.data),
        spec.measure.evaluate_and_save,
        spec.measure.upkeep.compute_metrics_rows,
        bool(unpredictable(spec)),
    ]
    return json.dumps(parts, sort_keys=True)


def built_key(spec: TrialSpec) -> str:
    """Equal for trials that build the same model, whatever batches it gets and whether it
    checkpoints."""
    settings = to_json(spec.settings)
    hooks = {place: settings["hooks"].get(place) for place in _BUILDING_HOOKS}
    parts = [*_built(spec, settings, (*_UNTRACED_PREFIXES, "gradient_checkpointing")), hooks]
    return json.dumps(parts, sort_keys=True)


def _built(spec: TrialSpec, settings: Any, without: tuple[str, ...]) -> list[Any]:
    """What decides both, besides hooks. ``without``: what other arguments begin with."""
    arguments = {
        name: value
        for name, value in settings["training_arguments"].items()
        if name not in _UNTRACED_ARGUMENTS and not name.startswith(without)
    }
    model = to_json(spec.model)
    return [model, arguments, settings["model_kwargs"], settings["deepspeed"], spec.world_size]
