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
from jobs.techniques.axes.sharding import SHARDING
from orchestrator.prediction.bounds import traceable
from orchestrator.prediction.estimator import Watch, model_key, quiet_libraries, unwatched
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.libraries import quick_imports
from orchestrator.prediction.model_group import Shared
from orchestrator.prediction.time.operations import StepWork
from orchestrator.prediction.time.ranks_time import time_of
from orchestrator.prediction.time.step_time import StepTime
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
class SpaceForecast:
    fitting: Sequence[Sequence[Candidate]]
    """For each memory that was asked for: of each set the fastest micro-batch that fits."""
    recipe: TrainingRecipe
    """The user's own."""
    sets: int
    left_out: int
    """Sets of techniques without a forecast of their own."""

    def ranked(self, asked: int = 0, *, of_other_recipes: bool = False) -> list[Candidate]:
        """Of the sets that train like the user's arguments, or of all others, the fastest first."""
        found = [
            own
            for own in self.fitting[asked]
            if (own.spec.training_recipe != self.recipe) is of_other_recipes
        ]
        return sorted(found, key=lambda own: own.time.likely_seconds_per_sample)


Asked = Sequence[tuple[Gpu, int]]
"""Cards, each with the memory (bytes) that a trial may take of it."""


def forecast_space(
    trials: Sequence[TrialSpec], asked: Asked, watch: Watch = unwatched
) -> SpaceForecast:
    """Trace the ways to run the model that most sets share, and those that train most differently.
    The user's own trial comes first. Traces are those of the first card; others may pick other
    attention kernels."""
    by_set: dict[str, list[TrialSpec]] = {}
    for spec in trials:
        by_set.setdefault(_techniques(spec), []).append(spec)
    recipe = trials[0].training_recipe
    chosen = _worth_tracing(list(_by_trace(by_set.values()).values()), recipe)
    fitting: list[list[Candidate]] = [[] for _ in asked]
    shared, number = Shared(), 0
    with quiet_libraries():
        for done, distinct in enumerate(chosen):
            watch(done, len(chosen))
            for specs in _of_trace(list(distinct.values()), asked, shared):
                number += 1
                for found, own in zip(fitting, specs, strict=True):
                    found += [own] if own is not None else []
        watch(len(chosen), len(chosen))
    return SpaceForecast(fitting=fitting, recipe=recipe, sets=number, left_out=len(by_set) - number)


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
    """Of each way to share a training between GPUs, in turn: the trace that most sets share, and
    the one that trains most differently. The user's own trace is the first of all."""
    by_sharding: dict[object, list[Distinct]] = {}
    for distinct in traces:
        sharding = _first(distinct).choices.get(SHARDING.name)
        by_sharding.setdefault(sharding, []).append(distinct)
    most = MOST_TRACES if len(by_sharding) == 1 else MOST_TRACES // 2
    return [own for distinct in by_sharding.values() for own in _in_turn(distinct, recipe)[:most]]


def _in_turn(traces: list[Distinct], recipe: TrainingRecipe) -> list[Distinct]:
    by_sets = sorted(traces[1:], key=len, reverse=True)
    by_recipe = sorted(by_sets, key=partial(_differences, recipe), reverse=True)
    in_turn = itertools.chain(traces[:1], *zip(by_sets, by_recipe, strict=True))
    return [*{id(distinct): distinct for distinct in in_turn}.values()]


def _first(distinct: Distinct) -> TrialSpec:
    return next(iter(distinct.values()))[0]


def _differences(recipe: TrainingRecipe, distinct: Distinct) -> int:
    """How many choices the set that trains most differently changes."""
    return max(len(own.choices ^ recipe.choices) for _, own in distinct)


def _of_trace(
    sets: list[list[TrialSpec]], asked: Asked, shared: Shared
) -> Iterator[list[Candidate | None]]:
    """Of each set the fastest micro-batch that fits, for each memory."""
    with quick_imports():
        from orchestrator.prediction.tracing.fake_ranks import fake_ranks
    with fake_ranks(sets[0][0].world_size):
        by_depth = ByDepth.of([*itertools.chain(*sets)], asked[0][0], shared)
        if by_depth is not None:
            for specs in sets:
                yield [fastest(specs, by_depth, gpu, memory_bytes) for gpu, memory_bytes in asked]


def fastest(
    specs: Sequence[TrialSpec], by_depth: ByDepth, gpu: Gpu, memory_bytes: int
) -> Candidate | None:
    """The fastest micro-batch of a set that fits; None if none does. The smallest comes first."""

    def device_bytes(spec: TrialSpec) -> int:
        known = by_depth.device_bytes(spec)
        return sys.maxsize if known is None else known

    found = []
    # Memory grows with the micro-batch.
    fitting = bisect.bisect(specs, memory_bytes, key=device_bytes)
    for spec in specs[max(0, fitting - _TIMED_SIZES) : fitting]:
        step = by_depth.step(spec)
        time = None if step is None else time_of(step, gpu)
        if step is not None and time is not None:
            size = device_bytes(spec)
            found.append(Candidate(spec=spec, device_bytes=size, step=step, time=time))
    return min(found, key=lambda own: own.time.likely_seconds_per_sample, default=None)


def _techniques(spec: TrialSpec) -> str:
    return json.dumps({axis: own for axis, own in spec.choices.items() if axis not in BATCH_AXES})


def forecast_key(spec: TrialSpec) -> str:
    """Equal for sets that have the same forecast."""
    simpler = traceable(spec)
    budget = str(spec.settings.hooks.get("partitioner"))
    tf32 = bool(spec.settings.training_arguments.get("tf32"))
    key = [model_key(simpler.spec), update_key(simpler.spec), simpler.is_compiled, tf32, budget]
    return json.dumps(key)
