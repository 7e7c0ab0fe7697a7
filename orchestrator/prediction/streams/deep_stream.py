"""The stream of a model with many equal layers, from those of the same model with few.

A layer more adds events wherever a pass goes through the layers: in the forward pass, in the
backward pass, and where autocast frees its copies. Each free gives back an allocation of its own
layer, or of one that is as far away in every layer.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from orchestrator.prediction.streams.affine_stream import Allocation, Event, Free, Stream


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
    deep = _Deep(_Trace(few, _Layout(runs, -1)), _Trace(more, _Layout(runs, 0)), runs, times)
    targets = deep.targets()
    events: list[Event] = []
    living = set()
    for position, source in enumerate(_sources(runs, len(more.events), times)):
        event = more.events[source]
        if isinstance(event, Allocation):
            events.append(event._replace(number=position))
            living.add(position)
        elif targets.get(position) in living:
            events.append(Free(number=targets[position]))
            living.remove(targets[position])
        else:
            return None
    work = more.work.deepened(few.work, times, deep.renumbered)
    return replace(more, events=tuple(events), work=work)


def _sources(runs: Sequence[_Run], length: int, times: int) -> Iterator[int]:
    """The position in the deeper trace of each event of the model with all layers."""
    begin = 0
    for run in runs:
        yield from range(begin, run.end)
        for _ in range(times):
            yield from range(run.end - run.period, run.end)
        begin = run.end
    yield from range(begin, length)


def _tokens(stream: Stream) -> list[tuple[object, ...]]:
    """Equal for events that are equal but for their numbers."""
    tokens: dict[int, tuple[object, ...]] = {}
    found: list[tuple[object, ...]] = []
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


class _Rule(NamedTuple):
    """Which allocation a layer frees, in a run through the layers in the same or another order."""

    run: int
    start: int
    direction: int

    def place(self, layer: int, depth: int, period: int) -> _Place:
        """``layer`` counts as the free's own run does. ``depth``: how many times the layers are
        more than those of the shorter trace."""
        layers = layer if self.direction > 0 else depth - layer
        return _Place(self.run, self.start + layers * period)


@dataclass(frozen=True, slots=True)
class _Deep:
    """The model with all layers."""

    few: _Trace
    more: _Trace
    runs: Sequence[_Run]
    times: int

    def renumbered(self, number: int) -> int:
        """The number of an allocation of the deeper trace. Whatever is named is of the last layer,
        or outside all of them."""
        if number not in self.more.positions:
            return number
        run, at = self.more.layout.place(self.more.positions[number])
        added = 0 if run is None else self.times * self.runs[run].period
        return _Layout(self.runs, self.times).position(_Place(run, at + added))

    def targets(self) -> dict[int, int]:
        """Position of each free -> that of its allocation, where that is known."""
        found: dict[_Place, _Place | None] = {}
        for place, target in self.more.targets.items():
            if place.run is None:
                found[place] = self._continued(self.few.targets.get(place), target)
            elif place.at < self.runs[place.run].period:
                found.update(self._of_layers(place.run, place.at))
        layout = _Layout(self.runs, self.times)
        return {
            layout.position(place): layout.position(target)
            for place, target in found.items()
            if target is not None
            and (target.run is None or 0 <= target.at < layout.length(target.run))
        }

    def _continued(self, few: _Place | None, more: _Place) -> _Place | None:
        """The place that moves on as from ``few`` to ``more``."""
        if few is None or few.run != more.run or (more.run is None and few != more):
            return None
        return more._replace(at=more.at + self.times * (more.at - few.at))

    def _of_layers(self, number: int, offset: int) -> Iterator[tuple[_Place, _Place | None]]:
        """The targets of a free in all layers. Those of the first and the last may be others."""
        run = self.runs[number]
        layers = len(range(offset, run.end - run.begin, run.period))
        places = [
            _Place(number, offset + layer * run.period) for layer in range(layers + self.times)
        ]
        rule = self._rule(places[:layers])
        if rule is None:
            return
        period = self.runs[rule.run].period
        for layer, place in enumerate(places):
            yield place, rule.place(layer, 1 + self.times, period)
        few, more = self.few.targets, self.more.targets
        others = [own for own in range(layers) if more[places[own]] != rule.place(own, 1, period)]
        # What the first and the last layer free, and what they free in the shorter trace.
        ends = {layers - 1: (places[-1], places[layers - 2]), 0: (places[0], places[0])}
        for layer in others:
            place, earlier = ends.get(layer, (places[layer], None))
            yield place, self._continued(earlier and few.get(earlier), more[places[layer]])

    def _rule(self, places: Sequence[_Place]) -> _Rule | None:
        """The rule that most of the layers at these places follow."""
        rules: Counter[_Rule] = Counter()
        for depth, trace in enumerate((self.few, self.more)):
            for layer, place in enumerate(places[: len(places) - 1 + depth]):
                run, at = trace.targets[place]
                if run is not None:
                    period = self.runs[run].period
                    # A run goes through its own layers in its own order.
                    for direction in (1,) if run == place.run else (1, -1):
                        start = _Rule(run, 0, direction).place(layer, depth, period).at
                        rules[_Rule(run, at - start, direction)] += 1
        likely = rules.most_common(2)
        is_clear = len({count for _, count in likely}) == len(likely) > 0
        return likely[0][0] if is_clear else None
