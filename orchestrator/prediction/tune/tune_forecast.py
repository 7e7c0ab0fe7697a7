"""The fastest configurations of ``tune``'s space that fit a memory, forecast from few traces.

Sets of techniques that no trace tells apart share a forecast, and the first stands for all. Memory
is that of two models with few layers, continued to the model's own number of layers.
"""

from __future__ import annotations

import bisect
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from jobs.spec import TrainingRecipe, TrialSpec
from jobs.techniques import BATCH_AXES
from orchestrator.prediction.bounds import traceable
from orchestrator.prediction.estimator import Watch, model_key, quiet_libraries, unwatched
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.model_group import Shared
from orchestrator.prediction.time.operations import StepWork
from orchestrator.prediction.time.step_time import StepTime, step_time
from orchestrator.prediction.time.step_work import update_key
from orchestrator.prediction.tune.depths import ByDepth

MOST_TRACES = 10
"""Ways to run a model that are traced; each takes a second or two."""
_TIMED_SIZES = 3
"""The largest micro-batches that fit, of which the fastest is taken."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A set of techniques at one of its micro-batches."""

    spec: TrialSpec
    device_bytes: int
    """Upper end of what NVML would see; of rows of unequal length, on the longest alone."""
    step: StepWork
    time: StepTime


@dataclass(frozen=True, kw_only=True, slots=True)
class SetForecast:
    """A set of techniques at all its micro-batches, the smallest first."""

    specs: Sequence[TrialSpec]
    by_depth: ByDepth

    def fastest(self, memory_bytes: int, gpu: Gpu) -> Candidate | None:
        """Its fastest micro-batch that fits; None if none does."""
        # Memory grows with the micro-batch.
        fitting = bisect.bisect(self.specs, memory_bytes, key=self._device_bytes)
        found = []
        for position in range(max(0, fitting - _TIMED_SIZES), fitting):
            spec = self.specs[position]
            step = self.by_depth.step(spec)
            time = None if step is None else step_time(step, gpu)
            if step is not None and time is not None:
                device = self.by_depth.device_bytes(spec) or 0
                found.append(Candidate(spec=spec, device_bytes=device, step=step, time=time))
        return min(found, key=lambda own: own.time.likely_seconds_per_sample, default=None)

    def _device_bytes(self, spec: TrialSpec) -> int:
        known = self.by_depth.device_bytes(spec)
        return sys.maxsize if known is None else known


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceForecast:
    sets: Sequence[SetForecast]
    recipe: TrainingRecipe
    """The user's own."""
    left_out: int
    """Sets of techniques without a forecast of their own."""

    def ranked(
        self, memory_bytes: int, gpu: Gpu, *, of_other_recipes: bool = False
    ) -> list[Candidate]:
        """Of each set that trains like the user's arguments, or of each other one, its fastest
        micro-batch that fits, the fastest first."""
        found = []
        with quiet_libraries():  # micro-batches are traced once they are asked for
            for own in self.sets:
                if (own.specs[0].training_recipe != self.recipe) is of_other_recipes:
                    found.append(own.fastest(memory_bytes, gpu))
        fitting = [own for own in found if own is not None]
        return sorted(fitting, key=lambda own: own.time.likely_seconds_per_sample)


def forecast_space(
    trials: Sequence[TrialSpec], gpu: Gpu, watch: Watch = unwatched
) -> SpaceForecast:
    """Trace the ways to run the model that most sets share, and those that train most differently.
    The user's own trial comes first."""
    by_set: dict[str, list[TrialSpec]] = {}
    for spec in trials:
        by_set.setdefault(_techniques(spec), []).append(spec)
    recipe = trials[0].training_recipe
    chosen = _worth_tracing(list(_by_trace(by_set.values()).values()), recipe)
    sets: list[SetForecast] = []
    shared = Shared()
    with quiet_libraries():
        for number, distinct in enumerate(chosen):
            watch(number, len(chosen))
            sets += _of_trace(list(distinct.values()), gpu, shared)
        watch(len(chosen), len(chosen))
    return SpaceForecast(sets=sets, recipe=recipe, left_out=len(by_set) - len(sets))


Distinct = dict[tuple[str, TrainingRecipe], list[TrialSpec]]
"""The sets of a trace: what its forecast depends on -> the first set, the smallest size first."""


def _by_trace(sets: Iterable[list[TrialSpec]]) -> dict[str, Distinct]:
    """The sets that can be forecast, by what their traces depend on."""
    found: dict[str, Distinct] = {}
    for specs in sets:
        specs.sort(key=lambda own: own.micro_batch)
        simpler = traceable(specs[0])
        # A compiler of a whole model may choose attention that keeps all scores: no trace shows it.
        if simpler.only_compile and simpler.only_save:
            # Sets of other recipes have answers of their own.
            key = forecast_key(specs[0]), specs[0].training_recipe
            found.setdefault(model_key(simpler.spec), {}).setdefault(key, specs)
    return found


def _worth_tracing(traces: list[Distinct], recipe: TrainingRecipe) -> list[Distinct]:
    """The first, and in turn the next that most sets share, and that trains most differently."""
    by_sets = sorted(traces[1:], key=len, reverse=True)
    by_recipe = sorted(by_sets, key=partial(_differences, recipe), reverse=True)
    in_turn = itertools.chain(traces[:1], *zip(by_sets, by_recipe, strict=True))
    return [*{id(distinct): distinct for distinct in in_turn}.values()][:MOST_TRACES]


def _differences(recipe: TrainingRecipe, distinct: Distinct) -> int:
    """How many choices the set that trains most differently changes."""
    return max(len(own.choices ^ recipe.choices) for _, own in distinct)


def _of_trace(sets: list[list[TrialSpec]], gpu: Gpu, shared: Shared) -> Iterator[SetForecast]:
    by_depth = ByDepth.of([*itertools.chain(*sets)], gpu, shared)
    if by_depth is not None:
        yield from (SetForecast(specs=specs, by_depth=by_depth) for specs in sets)


def _techniques(spec: TrialSpec) -> str:
    return json.dumps({axis: own for axis, own in spec.choices.items() if axis not in BATCH_AXES})


def forecast_key(spec: TrialSpec) -> str:
    """Equal for sets that have the same forecast."""
    simpler = traceable(spec)
    budget = str(spec.settings.hooks.get("partitioner"))
    tf32 = bool(spec.settings.training_arguments.get("tf32"))
    key = [model_key(simpler.spec), update_key(simpler.spec), simpler.is_compiled, tf32, budget]
    return json.dumps(key)
