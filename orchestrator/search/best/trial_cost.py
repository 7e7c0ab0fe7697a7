"""The expected slot time of a trial of each candidate: its steps, and everything else."""

import itertools
import statistics
from collections.abc import Sequence

import numpy as np

from jobs.record import TrialRecord
from jobs.spec import Choice
from jobs.techniques.hooks import hook_name
from orchestrator.search.model.arrays import Array, Mask, Numbering
from orchestrator.search.model.candidates import Candidate
from orchestrator.search.model.effects.similar_values import similar_to
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.effects.unrecorded import BUILD_SECONDS, compiles

Technique = tuple[str, Choice]
"""An axis and a value."""
USUAL_SECONDS = 2.5
"""Seconds of a trial besides its steps and its compilation. It counts as one trial without overhead
that was measured, because the first one also reads libraries that later ones find in memory."""
_LEAST_SECONDS = 0.2
"""A trial takes at least this long besides its steps. A smaller difference is measurement error."""
_LEAST_SCALE = 0.1
"""The smallest ratio of a measured overhead to the expected one."""


class TrialCost:
    """Expected slot time of trials: the time of their steps, and an overhead, because a compiled
    trial takes many times as long as an eager one. The expected overhead of each technique is
    scaled by that of its measured trials, or of similar techniques': a model that takes long to
    compile does so with any option of a compiler. On rows of unequal length it compiles again for
    lengths that are new. Building DeepSpeed's ops is added until a trial
    with them has ended."""

    def __init__(self, candidates: Sequence[Candidate], priors: TechniquePriors) -> None:
        overheads = [_expected_overheads(candidate, priors) for candidate in candidates]
        techniques = list(dict.fromkeys(itertools.chain.from_iterable(overheads)))
        self._overheads = np.array(
            [[own.get(each, 0.0) for each in techniques] for own in overheads]
        )
        """Expected overhead of each slow technique in seconds, shape (candidates, techniques)."""
        self._similar = [similar_to(technique, techniques) for technique in techniques]
        """For each slow technique: the numbers of similar ones."""
        self._scales: list[list[float]] = [[] for _ in range(self._overheads.shape[1])]
        """For each slow technique: measured overhead / expected overhead of each of its trials."""
        self._plain: list[float] = []
        """Overheads of trials without slow techniques, in seconds."""
        builds: Numbering[frozenset[str]] = Numbering()
        self._builds = builds.of(frozenset(own.trials[0].settings.builds) for own in candidates)
        """Index of the set of ops that each candidate builds, shape (candidates,)."""
        self._is_built: Mask = np.array([not ops for ops in builds], bool)
        """Whether each set of ops is already built, shape (sets,)."""
        samples = [own.steps * own.trials[0].effective_batch for own in candidates]
        self._samples = np.array(samples, float)
        """Samples of a trial of each candidate, but blocks of packed ones, shape (candidates,)."""
        hooks = [hook_name(own.trials[0], "batching") for own in candidates]
        self._is_packed: Mask = np.array(hooks) == "packed_whole_rows"
        """Whether a candidate's micro-batch counts blocks of rows, shape (candidates,)."""
        self._rows_per_block = 0.0
        """By the first trial that tells, for all trials, so that their times stay comparable."""

    def note(self, index: int, record: TrialRecord) -> None:
        """Learn the overhead of a trial; a trial without a speed is ignored."""
        speed = record.measurements.get("samples_per_second")
        if not speed or not record.slot_seconds:
            return
        tokens = record.measurements.get("real_tokens_per_second")
        if tokens and not self._rows_per_block:
            self._rows_per_block = max(1.0, record.spec.data.tokens * speed / tokens)
        of_steps = self._step_seconds(speed)[index]
        besides = max(_LEAST_SECONDS, record.slot_seconds - of_steps)
        expected = self._overheads[index].sum() + self._to_build()[index]
        if expected:
            scale = max(_LEAST_SCALE, (besides - self._usual()) / expected)
            for number in np.flatnonzero(self._overheads[index]):
                self._scales[number].append(scale)
        else:
            self._plain.append(besides)
        self._is_built[self._builds[index]] = True

    def seconds(self, speeds: Array) -> Array:
        """Expected seconds of trials at such expected samples per second, shape (candidates,)."""
        scales = np.array([self._scale(number) for number in range(len(self._scales))])
        besides = self._usual() + self._overheads @ scales + self._to_build()
        return np.asarray(besides + self._step_seconds(speeds))

    def rows_of_a_sample(self) -> Array:
        """Rows of the data in a sample, more than one in a packed block, shape (candidates,)."""
        return np.where(self._is_packed, self._rows_per_block or 1.0, 1.0)

    def _step_seconds(self, speeds: Array | float) -> Array:
        """Seconds of all steps of a trial, shape (candidates,)."""
        return np.asarray(self._samples * self.rows_of_a_sample() / speeds)

    def _scale(self, number: int) -> float:
        """Measured overhead of a slow technique / expected overhead."""
        if self._scales[number]:
            # The median ignores a trial that was disturbed.
            return statistics.median(self._scales[number])
        # Later trials of a similar technique find its code in the cache, but this one finds none.
        similar = [ratio for other in self._similar[number] for ratio in self._scales[other]]
        return max(similar, default=1.0)

    def _usual(self) -> float:
        """Seconds of a trial besides its steps, without slow techniques."""
        return statistics.median_low([USUAL_SECONDS, *self._plain])

    def _to_build(self) -> Array:
        """Seconds to build the ops that are not built yet, shape (candidates,)."""
        return np.where(self._is_built[self._builds], 0.0, BUILD_SECONDS)


def _expected_overheads(candidate: Candidate, priors: TechniquePriors) -> dict[Technique, float]:
    """Slow technique of a candidate -> its expected overhead in seconds."""
    overheads = {}
    for axis, _, value in candidate.techniques:
        times = _compilations(candidate) if compiles(axis, value) else 1
        overheads[axis, value] = times * priors.of(axis, value).overhead_seconds
    return {each: seconds for each, seconds in overheads.items() if seconds > 0}


def _compilations(candidate: Candidate) -> int:
    """How often a compiled trial compiles: once for each length that it meets. Where all lengths
    are multiples of a number, the second code serves all others: it has no length of its own, and
    no other alignment of rows is met."""
    is_padded = hook_name(candidate.trials[0], "batching") == "padded_to_multiple"
    return max(1, min(candidate.new_lengths, 2 if is_padded else candidate.new_lengths))
