"""The stream of a model with many equal layers, from those of the same model with few.

A layer more adds events wherever a pass goes through the layers: in the forward pass, in the
backward pass, and where autocast frees its copies. Each free gives back an allocation of its own
layer, or of one that is as far away in every layer.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from orchestrator.prediction.affine_stream import Allocation, Event, Free, Stream


class _Run(NamedTuple):
    """Where the deeper of two traces repeats a period for each layer."""

    begin: int
    end: int
    period: int


class _Place(NamedTuple):
    """A position in a run, or one of those outside all runs."""

    run: int | None
    at: int


class _Layout:
    """The places of a trace, whose runs have ``extra`` periods more than given."""

    def __init__(self, runs: Sequence[_Run], extra: int) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        shift = 0
        for run in runs:
            self._begins.append(run.begin + shift)
            shift += extra * run.period
            self._ends.append(run.end + shift)

    def length(self, run: int) -> int:
        return self._ends[run] - self._begins[run]

    def place(self, position: int) -> _Place:
        last = bisect.bisect_right(self._begins, position) - 1
        if last >= 0 and position < self._ends[last]:
            return _Place(last, position - self._begins[last])
        return _Place(None, position - sum(map(self.length, range(last + 1))))

    def position(self, place: _Place) -> int:
        if place.run is not None:
            return self._begins[place.run] + place.at
        position = place.at
        for run, begin in enumerate(self._begins):
            if begin <= position:
                position += self.length(run)
        return position


class _Trace:
    """The frees of a trace, each with the place of the allocation that it gives back."""

    def __init__(self, stream: Stream, layout: _Layout) -> None:
        self.layout = layout
        self.positions = {
            event.number: position
            for position, event in enumerate(stream.events)
            if isinstance(event, Allocation)
        }
        self.targets = {
            layout.place(position): layout.place(self.positions[event.number])
            for position, event in enumerate(stream.events)
            if isinstance(event, Free)
        }


def deepened(few: Stream, more: Stream, times: int) -> Stream | None:
    """The stream of a model with ``times`` as many layers more than ``more`` as that has more than
    ``few``; None if a layer more does not just repeat what the others do."""
    runs = _runs(_tokens(few), _tokens(more))
    if runs is None:
        return None
    deep, trace = _Layout(runs, times), _Trace(more, _Layout(runs, 0))
    targets = _targets(runs, (_Trace(few, _Layout(runs, -1)), trace), deep, times)
    sources: list[int] = []
    for begin, run in zip([0, *(run.end for run in runs)], runs, strict=False):
        sources += [*range(begin, run.end), *[*range(run.end - run.period, run.end)] * times]
    sources += range(runs[-1].end if runs else 0, len(more.events))
    events: list[Event] = []
    living = set()
    for position, source in enumerate(sources):
        event = more.events[source]
        if isinstance(event, Allocation):
            events.append(event._replace(number=position))
            living.add(position)
        elif targets.get(position) in living:
            events.append(Free(number=targets[position]))
            living.remove(targets[position])
        else:
            return None

    def renumbered(number: int) -> int:
        if number not in trace.positions:
            return number
        run, at = trace.layout.place(trace.positions[number])
        # Whatever is named lies behind most layers.
        return deep.position(_Place(run, at + (0 if run is None else times * runs[run].period)))

    return replace(more, events=tuple(events), work=more.work.deepened(few.work, times, renumbered))


def _tokens(stream: Stream) -> list[tuple[object, ...]]:
    """Equal for events that are equal but for their numbers."""
    tokens: dict[int, tuple[object, ...]] = {}
    found = []
    for event in stream.events:
        if isinstance(event, Allocation):
            tokens[event.number] = event[1:]
            found.append(event[1:])
        else:
            found.append(("free", *tokens[event.number]))
    return found


def _runs(
    few: Sequence[Any], more: Sequence[Any], position: int = 0, at: int = 0, least: int = 0
) -> list[_Run] | None:
    """The runs behind a position of each trace; None if the deeper one is not the other with a
    period more in some runs. No run begins before ``least``."""
    while position < len(few) and at < len(more) and few[position] == more[at]:
        position, at = position + 1, at + 1
    added = (len(more) - at) - (len(few) - position)
    if position == len(few) and not added:
        return []
    for period in range(1, min(at - least, added) + 1):
        # A layer more repeats what the one before it does.
        if more[at - period : at] == more[at : at + period]:
            end = at + period
            behind = _runs(few, more, position, end, end)
            if behind is not None:
                begin = at
                while begin > least and more[begin - 1] == more[begin - 1 + period]:
                    begin -= 1
                return [_Run(begin, end, period), *behind]
    return None


def _targets(
    runs: Sequence[_Run], traces: tuple[_Trace, _Trace], deep: _Layout, times: int
) -> dict[int, int]:
    """Position of each free in the deep stream -> that of its allocation, where that is known."""
    few, more = traces
    found: dict[_Place, _Place | None] = {
        place: _continued(few.targets.get(place), target, runs, times)
        for place, target in more.targets.items()
        if place.run is None
    }
    for number, run in enumerate(runs):
        for offset in range(run.period):
            if _Place(number, offset) in more.targets:
                found.update(_of_run(number, offset, runs, traces, times))
    return {
        deep.position(place): deep.position(target)
        for place, target in found.items()
        if target is not None and (target.run is None or 0 <= target.at < deep.length(target.run))
    }


def _continued(
    few: _Place | None, more: _Place, runs: Sequence[_Run], times: int
) -> _Place | None:
    """The place that moves on as from ``few`` to ``more``."""
    if few is None or few.run != more.run or (more.run is None and few != more):
        return None
    return more._replace(at=more.at + times * (more.at - few.at))


class _Rule(NamedTuple):
    """Which allocation a layer frees: in a run through the layers in the same or the other order."""

    run: int
    direction: int
    start: int

    @classmethod
    def of(cls, place: _Place, direction: int, layer: int, depth: int, period: int) -> _Rule:
        start = cls(place.run or 0, direction, 0).place(layer, depth, period).at
        return cls(place.run or 0, direction, place.at - start)

    def place(self, layer: int, depth: int, period: int) -> _Place:
        """``layer`` counts as its run does, and ``depth`` the layers more than in ``few``."""
        layers = layer if self.direction > 0 else depth - layer
        return _Place(self.run, self.start + layers * period)


def _of_run(
    number: int, offset: int, runs: Sequence[_Run], traces: tuple[_Trace, _Trace], times: int
) -> Iterator[tuple[_Place, _Place | None]]:
    """The targets of a free that each layer has. Those of the first and the last may be others."""
    run = runs[number]
    layers = len(range(offset, run.end - run.begin, run.period))
    places = [_Place(number, offset + layer * run.period) for layer in range(layers + times)]
    rules: Counter[_Rule] = Counter()
    for depth, trace in enumerate(traces):
        for layer in range(layers - 1 + depth):
            target = trace.targets[places[layer]]
            if target.run is not None:
                period = runs[target.run].period
                rules[_Rule.of(target, 1, layer, depth, period)] += 1
                # A run goes through its own layers in its own order.
                if target.run != number:
                    rules[_Rule.of(target, -1, layer, depth, period)] += 1
    likely = rules.most_common(2)
    if not likely or len({count for _, count in likely}) < len(likely):
        return
    rule = likely[0][0]
    period = runs[rule.run].period
    for layer in range(layers + times):
        yield places[layer], rule.place(layer, 1 + times, period)
    few, more = traces
    for layer in range(layers):
        target = more.targets[places[layer]]
        if target != rule.place(layer, 1, period):
            if layer == 0:
                yield places[0], _continued(few.targets[places[0]], target, runs, times)
            elif layer == layers - 1:
                before = few.targets.get(places[layer - 1])
                yield places[layer + times], _continued(before, target, runs, times)
            else:
                yield places[layer], None
