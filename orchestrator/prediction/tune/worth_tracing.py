"""Which ways to run a model, of all that ``tune`` may try, are traced for its forecasts."""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from jobs.spec import TrainingRecipe, TrialSpec
from jobs.techniques import BATCH_AXES
from jobs.techniques.axes.precision import PRECISION
from jobs.techniques.axes.sharding import SHARDING
from orchestrator.analysis.grouping import grouped
from orchestrator.prediction.bounds import traceable
from orchestrator.prediction.shared import model_key
from orchestrator.prediction.time.step_work import update_key
from orchestrator.prediction.unsupported import kept_on_host

MOST_TRACES = 20
"""Ways to run a model that may be traced; each takes seconds, and half of them are enough if they
fit."""
_OFFLOADED = 2
"""Ways that keep states on the host and are traced, beside those."""
_FASTEST_FORMATS = ("bf16", "fp16")
"""Of other number formats than the user's, the first that the space has is traced."""

Sets = list[list[TrialSpec]]
"""Sets of techniques that share a trace: the micro-batches of each, the smallest first."""


def worth_tracing(trials: Sequence[TrialSpec]) -> list[Sets]:
    """Of each way to share a training between GPUs, in turn: the sets of the trace that changes the
    least, of the one that trains most differently, and of the one that most sets share. The user's
    own trace is the first of all. The ways take turns, too. At last come the nearest that keep
    states on the host: they are slow, and fit where nothing else does."""
    sets = grouped(_of_worthy_formats(trials), techniques)
    by_sharding = grouped(
        _by_trace(sets.values()).values(),
        lambda distinct: _first(distinct).choices.get(SHARDING.name),
    )
    most = MOST_TRACES if len(by_sharding) == 1 else MOST_TRACES // 2
    recipe = trials[0].training_recipe
    in_turn = [_in_turn(traces, recipe) for traces in by_sharding.values()]
    turns = itertools.chain(*itertools.zip_longest(*(traces[:most] for traces in in_turn)))
    every = itertools.chain.from_iterable(in_turn)
    offloaded = [distinct for distinct in every if kept_on_host(_first(distinct))]
    nearest = sorted(offloaded, key=_nearness(trials[0]))[:_OFFLOADED]
    chosen = {id(distinct): distinct for distinct in (*filter(None, turns), *nearest)}
    return [list(distinct.values()) for distinct in chosen.values()]


def _of_worthy_formats(trials: Sequence[TrialSpec]) -> list[TrialSpec]:
    """The trials in the user's number format, in the fastest, and in those of other recipes."""
    own_format = trials[0].choices.get(PRECISION.name)
    formats = {spec.choices.get(PRECISION.name) for spec in trials}
    fastest = next((own for own in _FASTEST_FORMATS if own in formats), own_format)
    recipes = {own.training_recipe for own in trials}
    of_recipes = {own.by_axis.get(PRECISION.name) for own in recipes} - {None}
    worthy = {own_format, fastest, *of_recipes}
    return [own for own in trials if own.choices.get(PRECISION.name) in worthy]


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


def _in_turn(traces: list[Distinct], recipe: TrainingRecipe) -> list[Distinct]:
    own = _first(traces[0])
    by_sets = sorted(traces[1:], key=len, reverse=True)
    nearest = sorted(by_sets, key=_nearness(own))
    by_recipe = sorted(by_sets, key=partial(_differences, recipe), reverse=True)
    in_turn = itertools.chain(traces[:1], *zip(nearest, by_recipe, by_sets, strict=True))
    return [*{id(distinct): distinct for distinct in in_turn}.values()]


def _nearness(own: TrialSpec) -> Callable[[Distinct], tuple[int, int]]:
    """For traces, each once: how many axes differ from those of ``own``, and how many traces before
    differ in the same axes. So no axis of many values comes before all others."""
    before: Counter[frozenset[str]] = Counter()

    def nearness(distinct: Distinct) -> tuple[int, int]:
        choices = _first(distinct).choices
        axes = frozenset(axis for axis, value in own.choices.items() if choices.get(axis) != value)
        before[axes] += 1
        return len(axes), before[axes]

    return nearness


def _first(distinct: Distinct) -> TrialSpec:
    return next(iter(distinct.values()))[0]


def _differences(recipe: TrainingRecipe, distinct: Distinct) -> int:
    """How many choices the set that trains most differently changes."""
    return max(len(own.choices ^ recipe.choices) for _, own in distinct)


def techniques(spec: TrialSpec) -> str:
    return json.dumps({axis: own for axis, own in spec.choices.items() if axis not in BATCH_AXES})


def forecast_key(spec: TrialSpec) -> str:
    """Equal for sets that have the same forecast."""
    simpler = traceable(spec)
    budget = str(spec.settings.hooks.get("partitioner"))
    tf32 = bool(spec.settings.training_arguments.get("tf32"))
    key = [model_key(simpler.spec), update_key(simpler.spec), simpler.is_compiled, tf32, budget]
    return json.dumps(key)
