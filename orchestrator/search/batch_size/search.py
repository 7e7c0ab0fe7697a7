"""The batch-size search: the largest micro-batch that fits, the fastest, where the plateau begins, and accumulation.

It makes its trials as it goes, for one technique set on one kind of GPU. Two small sizes predict the largest one,
which is then run; the speed is sampled where it could matter. What it answers with was measured.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from itertools import pairwise

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.analysis.batch_size import (
    TOO_LARGE,
    Answer,
    Size,
    fastest,
    margin_bytes,
    plateau,
    size_of,
)
from orchestrator.search.base import Search
from orchestrator.search.batch_size.accumulation import Batch, next_way
from orchestrator.search.batch_size.scaling_fit import (
    bytes_at,
    largest_within,
    seconds_of_a_pass,
    size_of_speed,
)

MakeTrial = Callable[[int, int], TrialSpec | TrialRecord]
"""The trial of a micro-batch and an accumulation, or the record of why there can be none."""

_START_WITH_LIMIT, _START = 16, 4
_GROWTH, _SURE_GROWTH, _BOLDEST_GROWTH = 4, 8, 16
"""How many times larger the next size is where nothing predicts it, and at most where one or several sizes do."""
_RESOLUTION = 32
"""The largest is found to within a 32nd, to the sample below 64, unless it is to be exact."""
_ALIGNED = 8
"""Sizes are multiples of this where there is a choice: what people take, and tensor cores like."""
_GAP = 2.0
"""Sizes next to the fastest are at most this many times larger or smaller than it."""
_PLATEAU_GAP = 1.5
"""The plateau's first size is known to within this ratio, or to a fifth of where it is predicted."""
_PREDICTED_GAP = 1.2
_SHORTEST_STEP = 1.25
_COUNTED_SECONDS, _FEWEST_STEPS = 2.0, 2
"""So long a trial counts steps, and so few at least: the peak of memory is in the second step, warm-up included."""


class BatchSize(Search):
    """Tunes the batch of one technique set. Sizes are tried one after another, none twice.

    ``make`` gives a batch's trial. ``margin`` is kept free on the device: a share of its memory, or bytes from 1.
    ``limited`` says that a device's memory limits the size; without, every size fits until one is seen to fail.
    """

    def __init__(
        self,
        make: MakeTrial,
        *,
        techniques: str = "",
        limited: bool = True,
        effective_batch: int | None = None,
        margin: float = 0.05,
        tolerance: float = 0.02,
        max_micro_batch: int = 512,
        exact: bool = False,
    ) -> None:
        self._make = make
        self._techniques = techniques
        self._start = _START_WITH_LIMIT if limited else _START
        self._effective, self._margin, self._tolerance = effective_batch, margin, tolerance
        self._max, self._exact = max_micro_batch, exact
        self._records: dict[Batch, TrialRecord] = {}
        self._sizes: dict[Batch, Size] = {}
        self._ruled_out: dict[Batch, TrialRecord] = {}
        self._out: dict[str, Batch] = {}

    def ask(self) -> TrialSpec | None:
        spec = self._next()
        if spec is not None:
            self._out[spec.trial_id] = (spec.micro_batch, spec.accumulation)
        return spec

    def tell(self, record: TrialRecord) -> None:
        batch = (record.spec.micro_batch, record.spec.accumulation)
        if self._out.pop(record.trial_id, None) is None and (
            batch in self._records or not self.knows(record.spec)
        ):
            return
        self._records[batch] = record
        self._sizes[batch] = size_of(record, self._margin)

    @property
    def exhausted(self) -> bool:
        return not self._out and self._next() is None

    def skipped(self) -> Iterable[TrialRecord]:
        return tuple(self._ruled_out.values())

    def unasked(self) -> Iterable[TrialSpec]:
        return ()

    def knows(self, spec: TrialSpec) -> bool:
        """Whether a trial is one that this search could ask for; how many steps it counts depends on others."""
        made = self._make(spec.micro_batch, spec.accumulation)
        return (
            isinstance(made, TrialSpec)
            and _counting(made, spec.measure.steps).trial_id == spec.trial_id
        )

    @property
    def answer(self) -> Answer:
        """What is known by now."""
        single, memory = self._fitting(), self._memory()
        largest = max(single, default=0)
        device = next(
            (
                r.environment.get("gpu_memory_bytes")
                for r in self._records.values()
                if r.environment
            ),
            None,
        )
        return Answer(
            techniques=self._techniques,
            device_bytes=device,
            margin_bytes=margin_bytes(device, self._margin) if device else None,
            tolerance=self._tolerance,
            sizes=tuple(self._sizes[batch] for batch in sorted(self._sizes)),
            effective_batch=self._effective,
            max_micro_batch=self._max,
            next_bytes=bytes_at(memory, largest + 1) if largest and len(memory) > 1 else None,
            granularity=self._granularity(largest),
            unfinished=self._stopped()
            or ("" if self.exhausted else "it was ended before its last trial"),
        )

    def _next(self) -> TrialSpec | None:
        """The trial to run now, one at a time: the first that any rule wants and that no record or rule decides."""
        while not self._out and not self._stopped() and (batch := self._wanted()) is not None:
            made = self._make(*batch)
            if isinstance(made, TrialSpec):
                return _counting(made, self._steps(*batch))
            self._ruled_out[batch] = made
            self._sizes[batch] = size_of(made, self._margin)
        return None

    def _steps(self, micro_batch: int, accumulation: int) -> int | None:
        """As many steps as are predicted to take long enough; None where nothing is known of them."""
        if not (speeds := self._speeds()):
            return None
        seconds = accumulation * seconds_of_a_pass(speeds, micro_batch)
        return max(_FEWEST_STEPS, math.ceil(_COUNTED_SECONDS / seconds))

    def _wanted(self) -> Batch | None:
        # The plateau's rules come last: they learn from an effective batch of a single pass.
        for rule in (self._larger, self._aligned, self._whole, self._faster, self._smaller):
            found = rule()
            batch = (found, 1) if isinstance(found, int) else found
            if batch is not None and batch not in self._sizes:
                return batch
        return None

    def _stopped(self) -> str:
        """Why no size will do: the smallest tried failed for another reason than its size."""
        if self._fitting():
            return ""
        failed = (size for batch, size in sorted(self._sizes.items()) if batch[1] == 1)
        first = next(failed, None)
        if first is None or first.outcome in (
            Outcome.OK,
            *TOO_LARGE,
            Outcome.CRASHED,
            Outcome.TIMED_OUT,
        ):
            return ""
        return f"{first.outcome.value}: {first.reason}"

    def _fitting(self) -> dict[int, Size]:
        return {
            size.micro_batch: size
            for size in self._sizes.values()
            if size.accumulation == 1 and size.fits
        }

    def _speeds(self) -> dict[int, float]:
        return {micro_batch: size.speed for micro_batch, size in self._fitting().items()}

    def _memory(self) -> dict[int, float]:
        single = (size for size in self._sizes.values() if size.accumulation == 1)
        return {size.micro_batch: float(size.memory_bytes) for size in single if size.memory_bytes}

    def _larger(self) -> int | None:
        """Toward the largest size that fits; None when the next one is seen or predicted not to."""
        low = max(self._fitting(), default=0)
        failing = {
            batch[0]: size for batch, size in self._sizes.items() if batch[1] == 1 and not size.fits
        }
        high = min((size for size in failing if size > low), default=None)
        if not low:
            return self._first(high)
        if high is not None and (
            high - low <= self._granularity(low) or failing[high].outcome is Outcome.TIMED_OUT
        ):
            return None
        predicted = self._predicted(low)
        if low == self._max or predicted < low + self._granularity(low):
            return None
        # One less than predicted, where it does not matter: an allocator's rounding is as much as a sample.
        size = int(min(predicted - (self._granularity(low) > 1), low * _BOLDEST_GROWTH, self._max))
        if high is not None and size >= high:
            return self._below(low, high)
        return rounded if (rounded := size // _ALIGNED * _ALIGNED) > low else size

    def _first(self, failed: int | None) -> int | None:
        """Where to begin, and to begin again below the smallest size that failed."""
        if failed is None:
            return min(self._start, self._max)
        return max(1, failed // _GROWTH) if failed > 1 else None

    def _below(self, low: int, high: int) -> int:
        """Between a size that fits and one that failed. Where the memory was not to run out, by what is known of it:
        first just below, where an allocator's rounding leads, then farther and farther, as far as the middle."""
        middle = (low + high) // 2 if high <= _GROWTH * low else round(math.sqrt(low * high))
        if not self._is_predicted(low):
            return middle
        failed = sum(batch[1] == 1 and batch[0] >= high for batch in self._sizes)
        return max(middle, high - (self._granularity(high) << (failed - 1)))

    def _granularity(self, size: int) -> int:
        """The largest is known well enough when it is known to so many samples."""
        return 1 if self._exact else max(1, size // _RESOLUTION)

    def _is_predicted(self, low: int) -> bool:
        return len(self._memory()) > 1 and self._fitting()[low].limit_bytes < math.inf

    def _predicted(self, low: int) -> float:
        """The size that the memory measured so far leaves room for; without a limit, or with one size, just larger."""
        known, limit = self._memory(), self._fitting()[low].limit_bytes
        if len(known) == 1 and limit < math.inf:
            surely = int(low * limit / known[low])  # something is there before any sample
            return max(2 * low, min(surely, low * _SURE_GROWTH))
        return largest_within(known, limit) if self._is_predicted(low) else low * _GROWTH

    def _aligned(self) -> int | None:
        """The multiple of 8 below the largest: with it, the largest shows whether such multiples matter."""
        largest = max(self._fitting(), default=0)
        return largest // _ALIGNED * _ALIGNED if largest > _ALIGNED and largest % _ALIGNED else None

    def _faster(self) -> int | None:
        """Between the fastest size and a neighbour that is slower and far away."""
        fitting = self._fitting()
        best = fastest(fitting.values())
        for below, above in pairwise(sorted(fitting)):
            if best is None or best.micro_batch not in (below, above) or above <= _GAP * below:
                continue
            if (
                min(fitting[below].speed, fitting[above].speed)
                >= (1 - self._tolerance) * best.speed
            ):
                continue
            size = _between(below, above, math.sqrt(below * above))
            if (
                above == best.micro_batch
                and (start := self._plateau_start(below, above)) is not None
            ):
                size = _between(below, above, start)
            if size is not None and (size, 1) not in self._sizes:
                return size
        return None

    def _smaller(self) -> int | None:
        """Toward the smallest size that is as fast as the fastest, within the tolerance."""
        fitting = self._fitting()
        begin = plateau(tuple(fitting.values()), self._tolerance)
        if begin is None or begin.micro_batch == 1:
            return None
        above = begin.micro_batch
        below = max((size for size in fitting if size < above), default=0)
        if not below:
            return max(1, above // _GROWTH)
        start = self._plateau_start(below, above)
        if start is None or above <= _PLATEAU_GAP * below:
            return None
        size = _between(below, above, start)
        return size if size is not None and above > _PREDICTED_GAP * size else None

    def _plateau_start(self, below: int, above: int) -> float | None:
        """Where the plateau is predicted to begin between two sizes, the larger on it and the smaller not."""
        fitting = self._fitting()
        best = fastest(fitting.values())
        wanted = (1 - self._tolerance) * best.speed if best else 0.0
        if not fitting[below].speed < wanted <= fitting[above].speed:
            return None
        return max(size_of_speed(self._speeds(), below, above, wanted), below * _SHORTEST_STEP)

    def _whole(self) -> Batch | None:
        """The next way to the effective batch."""
        return next_way(self._sizes, self._effective, self._tolerance) if self._effective else None


def _counting(spec: TrialSpec, steps: int | None) -> TrialSpec:
    """The trial with at most so many counted steps."""
    most = spec.measure.steps
    if steps is None or most is None or steps >= most:
        return spec
    return dataclasses.replace(spec, measure=dataclasses.replace(spec.measure, steps=steps))


def _between(below: int, above: int, wanted: float) -> int | None:
    """A size near the wanted one, strictly between two; a multiple of 8 where there is one."""
    for unit in (_ALIGNED, 1):
        size = math.ceil(wanted / unit) * unit
        if below < size < above:
            return size
        if below < size - unit < above:
            return size - unit
    return None
