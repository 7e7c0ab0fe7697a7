"""The fastest configurations of ``tune``'s space that fit a memory, forecast from few traces.

Sets of techniques that no trace tells apart share a forecast, and the first stands for all. Of rows
of unequal length the longest stand for all in the memory, and usual ones in the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from jobs.spec import TrainingRecipe, TrialSpec
from orchestrator.prediction.bounds import traceable
from orchestrator.prediction.estimator import Watch, quiet_libraries, unwatched
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.prediction import Prediction, figure
from orchestrator.prediction.shared import model_key, shared_in_process
from orchestrator.prediction.tune.traced_sets import Asked, TracedCandidate, of_trace, with_epoch
from orchestrator.prediction.tune.worth_tracing import (
    MOST_TRACES,
    Sets,
    techniques,
    worth_tracing,
)
from orchestrator.prediction.unsupported import kept_on_host

Across = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceForecast:
    asked: Asked
    fitting: Sequence[Sequence[TracedCandidate]]
    """For each memory that was asked for: of each set the largest micro-batches that fit."""
    recipe: TrainingRecipe
    """The user's own."""
    sets: int
    left_out: int
    """Sets of techniques without a forecast of their own."""
    across: Across = map
    """As ``map``: forecasts epochs."""
    _epochs: dict[tuple[str, str], TracedCandidate] = field(default_factory=dict)
    """Card and trial -> the candidate with an epoch's memory."""
    _added: dict[tuple[str, str], dict[int, float]] = field(default_factory=dict)
    """Card and trace -> micro-batch -> an epoch's memory as a multiple of the longest rows'."""

    def ranked(self, asked: int = 0, *, of_other_recipes: bool = False) -> list[TracedCandidate]:
        """Of each set that trains like the user's arguments, or of each other one, the fastest
        micro-batch that fits; the fastest first. Of rows of unequal length, the first fits with an
        epoch of all rows, and others as far as that says of their traces."""
        gpu, memory_bytes = self.asked[asked]
        found: dict[str, TracedCandidate] = {}
        for own in sorted(self._of(self.fitting[asked], of_other_recipes), key=_seconds):
            if not found and own.is_of_longest and self._epoch_bytes(own, gpu) <= memory_bytes:
                own = self._with_epoch(own, gpu)
            if self._epoch_bytes(own, gpu) <= memory_bytes:
                found.setdefault(techniques(own.spec), own)
        return list(found.values())

    def _of(self, candidates: Iterable[TracedCandidate], is_other: bool) -> list[TracedCandidate]:
        recipe = self.recipe
        return [own for own in candidates if (own.spec.training_recipe != recipe) is is_other]

    def _epoch_bytes(self, own: TracedCandidate, gpu: Gpu) -> float:
        """Bytes of an epoch, as far as they are known."""
        known = self._added.get((gpu.name, model_key(traceable(own.spec).spec)), {})
        added = _added_at(own.spec.micro_batch, known, 1.0) if own.is_of_longest else 1.0
        return own.device_bytes * added

    def _with_epoch(self, own: TracedCandidate, gpu: Gpu) -> TracedCandidate:
        key = gpu.name, own.spec.trial_id
        if key not in self._epochs:
            [epoch] = self.across(_of_epoch, [(own, gpu)])
            self._note(own, gpu, epoch)
        return self._epochs[key]

    def _note(self, own: TracedCandidate, gpu: Gpu, epoch: TracedCandidate) -> None:
        self._epochs[gpu.name, own.spec.trial_id] = epoch
        trace = gpu.name, model_key(traceable(own.spec).spec)
        added = epoch.device_bytes / own.device_bytes
        self._added.setdefault(trace, {})[own.spec.micro_batch] = added

    def with_epochs_of_the_fastest(self) -> SpaceForecast:
        """With what is asked for first, at once."""
        fastest: dict[tuple[str, str], tuple[TracedCandidate, Gpu]] = {}
        for (gpu, _), found in zip(self.asked, self.fitting, strict=True):
            for is_other in (False, True):
                own = min(self._of(found, is_other), key=_seconds, default=None)
                if own is not None and own.is_of_longest:
                    fastest[gpu.name, own.spec.trial_id] = own, gpu
        epochs = self.across(_of_epoch, fastest.values())
        for (own, gpu), epoch in zip(fastest.values(), epochs, strict=True):
            self._note(own, gpu, epoch)
        return self


def forecast_space(
    trials: Sequence[TrialSpec], asked: Asked, watch: Watch = unwatched, across: Across = map
) -> SpaceForecast:
    """Trace what is ``worth_tracing``, for the first card; others may pick other attention
    kernels. ``across``: as ``map``, such as that of a pool of processes."""
    chosen = worth_tracing(trials)
    fitting: list[list[TracedCandidate]] = [[] for _ in asked]
    enough = min(len(chosen), MOST_TRACES // 2)
    number, useful = 0, 0
    recipe = trials[0].training_recipe
    watch(useful, enough)
    for is_last in (False, True):
        done = 0
        for traced in across(partial(_of_sets, asked=asked), chosen):
            done += 1
            number += len(traced)
            for specs in traced:
                for found, own in zip(fitting, specs, strict=True):
                    found += own
            useful += any(own.time for of_set in traced for fits in of_set for own in fits)
            watch(min(useful, enough), enough)
            if useful >= enough and not is_last:
                break
        if all(any(own.spec.training_recipe == recipe for own in found) for found in fitting):
            break
        # States on the host take least memory, for where nothing else fits.
        chosen = [sets for sets in chosen[done:] if kept_on_host(sets[0][0])]
    watch(enough, enough)
    forecast = SpaceForecast(
        asked=asked,
        fitting=fitting,
        recipe=recipe,
        sets=number,
        left_out=len(set(map(techniques, trials))) - number,
        across=across,
    )
    return forecast.with_epochs_of_the_fastest()


def _of_sets(sets: Sets, asked: Asked) -> list[list[list[TracedCandidate]]]:
    """As ``of_trace``, as far as the trace goes: a model may refuse any."""
    found: list[list[list[TracedCandidate]]] = []
    with quiet_libraries(), suppress(Exception):
        found.extend(of_trace(sets, asked, shared_in_process(is_likely=False)))
    return found


def largest_that_fit(sets: Sets, gpu: Gpu, budgets: Sequence[int]) -> list[Prediction]:
    """Of the sets of a trace the largest micro-batches that fit each of the ``budgets`` (bytes;
    without any, the card's own memory). An epoch of all rows says of the fastest in the smallest
    and in the largest budget what they take beside the longest, and so of all. Raises what a trace
    does."""
    asked = [(gpu, budget) for budget in sorted(budgets or (gpu.total_bytes,))]
    shared = shared_in_process(is_likely=True)
    with quiet_libraries():
        # A trial may show that the upper end of a forecast is too high.
        answers = list(of_trace(sets, asked, shared))
        added: dict[int, float] = {}
        for budget in (0, -1):
            fitting = [own for of_set in answers for own in of_set[budget]]
            # What compiled code keeps is less certain.
            own = min(
                fitting,
                key=lambda own: (traceable(own.spec).is_compiled, _seconds(own)),
                default=None,
            )
            if own is not None and own.spec.micro_batch not in added:
                epoch = with_epoch(own, gpu, shared)
                added[own.spec.micro_batch] = epoch.device_bytes / own.device_bytes
    found = {own.spec.trial_id: own for of_set in answers for fits in of_set for own in fits}
    of_smallest = added[min(added)] if added else 1.0
    return [
        _as_prediction(own, _added_at(own.spec.micro_batch, added, of_smallest))
        for own in found.values()
    ]


def _added_at(micro_batch: int, known: Mapping[int, float], otherwise: float) -> float:
    """An epoch's memory as a multiple of the longest rows': that of the next smaller micro-batch,
    because large ones have hardly any other rows."""
    smaller = max((own for own in known if own <= micro_batch), default=None)
    return otherwise if smaller is None else known[smaller]


def _seconds(own: TracedCandidate) -> tuple[float, float]:
    # Of equally likely ones, the host sets the pace, and the faster kernels wait less for it. Of
    # those that wait for the host's memory, the largest wait least.
    of_kernels = -own.spec.micro_batch if own.time is None else own.time.seconds
    return own.seconds_per_sample, of_kernels


def _as_prediction(own: TracedCandidate, added: float) -> Prediction:
    device = figure(int(own.device_bytes * added), below=0.0, above=0.0)
    choices = own.spec.choices
    return Prediction(trial_id=own.spec.trial_id, choices=choices, device=device, step=own.step)


def _of_epoch(asked: tuple[TracedCandidate, Gpu]) -> TracedCandidate:
    return with_epoch(*asked, shared_in_process(is_likely=False))
