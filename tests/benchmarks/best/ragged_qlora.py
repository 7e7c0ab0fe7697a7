"""SIMULATED in part: 4-bit LoRA of 8 B parameters on rows of unequal length, on an H100.

Memory and seconds are forecast (tests/data/predictions/qlora_8b_traced.parquet). A draw changes
what the forecast says of the GPU, of the host and of each technique. What compiling does is
assumed.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow.parquet as pq

from jobs.record import TrialRecord
from jobs.spec import Choice, DataSpec, Hook, MeasureSpec, SyntheticData
from jobs.spec.model_and_data import RowLengthDistribution
from orchestrator.search.model.candidates import candidates_of
from orchestrator.units import GIB
from tests.benchmarks.grids import DATA, Table, make_record, make_spec
from tests.benchmarks.tuned.techniques import DRAWN_DEVIATION, drawn_factor

AXES: Mapping[str, tuple[Choice, ...]] = {
    "base": ("bnb_4bit", "bnb_4bit(upcast=false)"),
    "micro_batch": (1, 2, 3, 4, 6, 8),
    "activations": ("checkpoint", "keep"),
    "kernels": ("none", "liger"),
    "loss": ("plain", "chunked", "liger"),
    "batching": ("pad", "pad_to_64", "packed_whole_rows"),
    "compile": ("none", "inductor_regional"),
}
"""The first value of each is the user's."""
_TRACED = DATA / "predictions" / "qlora_8b_traced.parquet"
_LENGTHS = RowLengthDistribution(distribution="lognormal", mean=600.0)
_DATA = DataSpec(synthetic=SyntheticData(sequence_length=2048, samples=400, lengths=_LENGTHS))
_HOOKS = {
    "pad_to_64": {"batching": Hook("padded_to_multiple", {"multiple": 64})},
    "packed_whole_rows": {"batching": Hook("packed_whole_rows")},
}
_TRAINS_DIFFERENTLY = ("bnb_4bit(upcast=false)", "packed_whole_rows")
_DEVICE_BYTES = 80 * GIB
_FORECAST_DEVIATION = 0.15
"""Of all forecast seconds of the GPU, and of those of the host, as a logarithm."""
_START_SECONDS, _NEW_LENGTH_SECONDS = 2.5, 0.1
"""Of a trial before its steps; of a length that an eager kernel is prepared for."""
_COMPILED, _COMPILED_HOST, _COMPILING_SECONDS = 0.8, 0.5, 5.0
"""Factors of the GPU's and of the host's seconds; for each code that is compiled."""


@dataclass(frozen=True, slots=True)
class _Traced:
    """A set of techniques at several micro-batches, ascending."""

    sizes: np.ndarray
    figures: np.ndarray
    """Bytes, seconds of the GPU and of the host, and samples of a step, shape (sizes, 4)."""

    def at(self, size: float) -> list[float]:
        return [float(np.interp(size, self.sizes, each)) for each in self.figures.T]


def ragged_qlora(seed: int) -> tuple[Table, Mapping[str, float], Mapping[str, float]]:
    """One draw of the grid, the traced bytes of its eager trials, and the forecast seconds of their
    samples. The same seed is the same."""
    records, memory, seconds = {}, {}, {}
    for choices in _combinations():
        record = _record(choices, seed)
        records[record.trial_id] = record
        if choices["compile"] == "none":
            memory[record.trial_id], gpu, host, samples = _traced()[_key(choices)].at(
                record.spec.micro_batch
            )
            seconds[record.trial_id] = max(gpu, host) / samples
    return records, memory, seconds


def _combinations() -> Iterator[dict[str, Choice]]:
    for values in itertools.product(*AXES.values()):
        choices = dict(zip(AXES, values, strict=True))
        # As in the space of tune, of which the file has what is not compiled: fused losses break
        # compiled graphs.
        is_traced = _key(choices) in _traced()
        if is_traced and (choices["compile"] == "none" or choices["loss"] != "liger"):
            yield choices


def _record(choices: Mapping[str, Choice], seed: int) -> TrialRecord:
    usual = {axis: choices[axis] for axis in ("base", "batching")}
    recipe = {axis: own for axis, own in usual.items() if own in _TRAINS_DIFFERENTLY}
    spec = make_spec({**choices, "accumulation": 1}, recipe)
    spec = replace(
        spec,
        data=_DATA,
        measure=MeasureSpec(steps=5),
        settings=replace(spec.settings, hooks=_HOOKS.get(str(choices["batching"]), {})),
    )
    memory, gpu, host, samples = _traced()[_key(choices)].at(spec.micro_batch)
    memory *= drawn_factor(seed, 0.02, "memory")
    gpu *= drawn_factor(seed, _FORECAST_DEVIATION, "gpu")
    host *= drawn_factor(seed, _FORECAST_DEVIATION, "host")
    for axis, value in choices.items():
        gpu *= drawn_factor(seed, DRAWN_DEVIATION, axis, str(value))
    (candidate,) = candidates_of([spec])
    besides = _START_SECONDS + _NEW_LENGTH_SECONDS * candidate.new_lengths
    if choices["compile"] != "none":
        gpu, host = _COMPILED * gpu, _COMPILED_HOST * host
        codes = 2 if choices["batching"] == "pad_to_64" else candidate.new_lengths
        besides += _COMPILING_SECONDS * codes
    step = max(gpu, host)
    fits = memory <= _DEVICE_BYTES
    return make_record(
        spec,
        memory if fits else None,
        samples / step if fits else None,
        device_bytes=_DEVICE_BYTES,
        # The last step, on the longest rows alone, takes about as long as two.
        slot_seconds=besides + (candidate.steps + 1) * step if fits else besides,
        host_bound_share=float(host > gpu),
        step_seconds_median=step,
    )


def _key(choices: Mapping[str, Choice]) -> tuple[Choice, ...]:
    return tuple(choices[axis] for axis in ("base", "kernels", "loss", "activations", "batching"))


@cache
def _traced() -> Mapping[tuple[Choice, ...], _Traced]:
    listed: dict[tuple[Choice, ...], list[list[float]]] = {}
    for row in pq.read_table(_TRACED).to_pylist():
        figures = [row[own] for own in ("device_bytes", "gpu_seconds", "host_seconds", "samples")]
        listed.setdefault(_key(row), []).append([row["micro_batch"], *figures])
    columns = {key: np.array(rows, float) for key, rows in listed.items()}
    return {key: _Traced(own[:, 0], own[:, 1:]) for key, own in columns.items()}
