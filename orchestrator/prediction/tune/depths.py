"""Models with many equal layers, from traces of a few layers: what a step runs, and its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.spec import TrialSpec
from orchestrator.prediction.bounds import traceable
from orchestrator.prediction.estimator import predict, quiet_libraries
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.libraries import quick_imports
from orchestrator.prediction.model_group import ModelGroup, Shared
from orchestrator.prediction.prediction import Prediction
from orchestrator.prediction.time.operations import StepWork
from orchestrator.prediction.tune.compiled_memory import CompiledMemory
from orchestrator.prediction.unsupported import unpredictable

_FEW, _MORE = 2, 4
"""Layers that are traced. Layers may alternate, so both are even."""


def quick_predictions(trials: Sequence[TrialSpec], gpu: Gpu) -> list[Prediction]:
    """Memory of trials that share traces, in order, within seconds: few layers are traced, and of
    rows of unequal length the longest stand for all. Whole predictions where that cannot be."""
    with quick_imports():
        from orchestrator.prediction.tracing.fake_ranks import fake_ranks
    with quiet_libraries(), fake_ranks(trials[0].world_size):
        by_depth = ByDepth.of(trials, gpu, Shared())
        if by_depth is not None:
            return list(map(by_depth.prediction, trials))
    return predict(trials, gpu)


@dataclass(frozen=True, kw_only=True, slots=True)
class ByDepth:
    """Trials that share traces, at two depths."""

    few: ModelGroup
    more: ModelGroup
    times: float
    """How many times the difference of the two is missing to the model's own depth."""
    compiled: CompiledMemory

    @classmethod
    def of(cls, trials: Sequence[TrialSpec], gpu: Gpu, shared: Shared) -> ByDepth | None:
        """None if the trials cannot be traced. Memory is that of the longest rows."""
        simpler = [traceable(spec).spec for spec in trials]
        spec = simpler[0]
        if unpredictable(spec):
            return None
        with quick_imports():
            from jobs.trial.models import architecture_config
        try:
            config = architecture_config(simpler[0].model)
            layers = int(getattr(config, "num_hidden_layers", 0) or 0)
            # What DeepSpeed's engine holds does not grow in proportion.
            if layers <= _MORE or spec.settings.deepspeed is not None:
                whole = _group(simpler, layers, gpu, shared)
                compiled = CompiledMemory(few=whole, more=whole, layers=max(1, layers))
                return cls(few=whole, more=whole, times=0.0, compiled=compiled)
            few, more = (_group(simpler, own, gpu, shared) for own in (_FEW, _MORE))
        except Exception:  # a model may refuse fewer layers, or any trace
            return None
        times = (layers - _MORE) / (_MORE - _FEW)
        compiled = CompiledMemory(few=few, more=more, layers=_MORE - _FEW)
        return cls(few=few, more=more, times=times, compiled=compiled)

    def step(self, spec: TrialSpec) -> StepWork | None:
        """None if a technique changes its kernels in a way that is not known."""
        simpler = traceable(spec)
        try:
            more, few = (own.step_work(simpler.spec) for own in (self.more, self.few))
        except Exception:
            return None
        return simpler.step(more.deepened(few, self.times))

    def prediction(self, spec: TrialSpec) -> Prediction:
        """The memory of the GPU and the step of a trial that is traced as it is; its other figures
        are those of few layers."""
        more, few = (own.prediction(spec) for own in (self.more, self.few))
        if more.device is None or more.allocated is None or few.allocated is None:
            return more
        # What is allocated grows in proportion; what the allocator caches is that of few layers.
        added = round((more.allocated.bytes - few.allocated.bytes) * self.times)
        step = more.step
        if step is not None and few.step is not None:
            step = step.deepened(few.step, self.times)
        return replace(more, device=more.device.plus(added), step=step)

    def device_bytes(self, spec: TrialSpec) -> int | None:
        """The memory of the GPU: its upper end, or of a compiled trial the likely figure."""
        simpler = traceable(spec)
        kept = self.compiled.kept(spec) if simpler.is_compiled else 0.0
        more, few = (
            own.prediction(simpler.spec, kept=kept).device for own in (self.more, self.few)
        )
        if more is None or few is None:
            return None
        high, low = (own.bytes if kept else own.most for own in (more, few))
        return round(high + (high - low) * self.times)


def _group(trials: Sequence[TrialSpec], layers: int, gpu: Gpu, shared: Shared) -> ModelGroup:
    from orchestrator.prediction.tracing.batches import of_longest_rows
    from orchestrator.prediction.tracing.fake_step import FakeStep

    model = trials[0].model
    config = {**model.config, "num_hidden_layers": layers} if layers else model.config
    spec = replace(trials[0], model=replace(model, config=config))
    step = FakeStep(spec, gpu, shared.known)
    step.batches = of_longest_rows(step.batches)
    return ModelGroup(trials, step, gpu, shared)
