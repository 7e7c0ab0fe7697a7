"""Makes the trials of follow-ups: tie-breaks in alternating rounds, cap checks and profiles."""

from collections.abc import Sequence
from dataclasses import replace

from jobs.record import TrialRecord
from jobs.spec import FollowUp, MemoryCap, Purpose, TrialSpec


def tie_break(records: Sequence[TrialRecord], rounds: int) -> list[TrialSpec]:
    """Repeat close configurations in rounds whose order alternates: A B, B A, A B ...

    So a steady drift, such as a GPU that warms up, slows all configurations equally. Empty for
    fewer than two records, because there is nothing to compare.
    """
    if len(records) < 2:
        return []
    # Every round has the same configurations. Odd rounds run them backwards.
    compared = tuple(record.trial_id for record in records)
    trials = []
    for number in range(rounds):
        for record in records[::-1] if number % 2 else records:
            follow_up = FollowUp(
                follows_trial=record.trial_id,
                purpose=Purpose.TIE_BREAK,
                compared_with=compared,
                round=number,
            )
            trials.append(replace(record.spec, follow_up=follow_up))
    return trials


def under_cap(record: TrialRecord, budget_bytes: int) -> TrialSpec:
    """Repeat a configuration with the memory of its GPU capped to a budget."""
    cap = MemoryCap(device_bytes=budget_bytes, non_allocator_bytes=_non_allocator_bytes(record))
    return replace(
        record.spec,
        measure=replace(record.spec.measure, memory_cap=cap),
        follow_up=FollowUp(follows_trial=record.trial_id, purpose=Purpose.CAP_CHECK),
    )


def _non_allocator_bytes(record: TrialRecord) -> int:
    """Bytes that the trial took outside PyTorch's allocator: CUDA context and libraries.

    0 if unknown.
    """
    used = record.measurements.get("device_peak_bytes") or 0
    reserved = record.measurements.get("peak_reserved_bytes") or 0
    if not used or not reserved:
        return 0
    return max(0, used - reserved)


def profiled(record: TrialRecord) -> TrialSpec:
    """Repeat a configuration with a profile. One counted step is enough: its speed is known."""
    return replace(
        record.spec,
        measure=replace(record.spec.measure, steps=1, profile=True),
        follow_up=FollowUp(follows_trial=record.trial_id, purpose=Purpose.PROFILE),
    )


def compared_trials(spec: TrialSpec) -> tuple[str, ...]:
    """The trials that a round of a tie-break compares; empty for any other trial."""
    if spec.follow_up is None:
        return ()
    return spec.follow_up.compared_with
