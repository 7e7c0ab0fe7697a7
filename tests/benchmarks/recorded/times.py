"""Forecast seconds of a step against recorded ones: each model by the efficiencies of the others.

FILE is what ``python -m tests.benchmarks.predictions --times`` wrote: the seconds of the kernels of
each recorded configuration at the card's full rates. Rows on a GPU that other processes used are
left out. FILE of ``--other`` holds rows of another card, which the fit never sees. The last lines
are what ``orchestrator/prediction/time/efficiencies.yaml`` holds: the same fit, on all models, and
the errors of those that were left out.
"""

import itertools
import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import lsq_linear

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.time.step_time import DROPPED, SCORES, interval, learned
from orchestrator.units import GIB
from tests.benchmarks.recorded.timed_rows import HOST_BOUND, Timed, timed

_USUAL_SHARE = 0.7
"""The efficiency of a kind of which the rows say little."""
_USUAL = {SCORES: 2.0, DROPPED: 3.5}
_USUAL_SECONDS = (2e-6, 6e-6, 4e-5, 4e-3)
"""Between two kernels; of the launch of a kernel, which an optimizer waits for, by PyTorch and by
another library; between steps."""
_PRIOR = 0.3
"""Weight of a factor's usual value, where a model has 1."""
_BUDGETS = (24, 40, 80, 138)
_ENOUGH = 8
"""Rows among which a pick says something."""
_ENDS = (0.02, 0.98)
_MARGIN = 1.3
"""An interval ends so much beyond these quantiles of the errors: then 95 % of the rows of a model
are within the intervals of the others."""
_STEADY = 0.02
"""Relative errors below this are all as good: equal trials differ by as much."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """Kind -> seconds for each second at full rates; and seconds for each kernel and step."""

    factors: Mapping[str, float]
    seconds_per_kernel: float
    seconds_per_optimizer_kernel: float
    seconds_per_library_update: float
    seconds_per_step: float

    def __call__(self, own: Timed) -> float:
        kinds = own.full_rate_seconds.items()
        seconds = sum(self.factors.get(kind, 1 / _USUAL_SHARE) * full for kind, full in kinds)
        seconds += self.seconds_per_step + self.seconds_per_kernel * own.launches
        seconds += self.seconds_per_optimizer_kernel * own.optimizer_launches
        return seconds + self.seconds_per_library_update * own.library_launches


def fitted(rows: Sequence[Timed]) -> Fit:
    """Least absolute relative errors. Every model has the same weight; the assumption that all is
    as usual has less, and decides where the rows say little."""
    kinds = sorted({kind for own in rows for kind in own.full_rate_seconds})
    usual = np.array([*(_USUAL.get(kind, 1 / _USUAL_SHARE) for kind in kinds), *_USUAL_SECONDS])
    table = [
        [own.full_rate_seconds.get(kind, 0.0) for kind in kinds]
        + [own.launches, own.optimizer_launches, own.library_launches, 1.0]
        for own in rows
    ]
    # A column is the share of the step's time that its kind would have if all were as usual.
    shares = np.array(table) * usual / np.array([[own.seconds] for own in rows])
    models = [own.model for own in rows]
    weights = np.array([models.count(model) ** -0.5 for model in models])
    changes = np.ones(len(usual))
    for _ in range(30):
        # Reweighted least squares: the weight of an error falls as it grows.
        own = weights * np.sqrt(0.1 / np.maximum(abs(shares @ changes - 1), _STEADY))
        left = np.vstack([shares * own[:, None], _PRIOR * np.eye(len(usual))])
        right = np.concatenate([own, _PRIOR * np.ones(len(usual))])
        changes = lsq_linear(left, right, bounds=(0.3, 4)).x
    factors = changes * usual
    return Fit(
        factors=dict(zip(kinds, factors, strict=False)),
        seconds_per_kernel=float(factors[-4]),
        seconds_per_optimizer_kernel=float(factors[-3]),
        seconds_per_library_update=float(factors[-2]),
        seconds_per_step=float(factors[-1]),
    )


def constant_mfu(rows: Sequence[Timed]) -> Callable[[Timed], float]:
    """The rival: the median MFU of the rows of a number format; of all rows if it has none."""
    rates = load_gpu("h200").flops_per_second

    def full(own: Timed) -> float:
        return own.model_flop / rates[own.number_format.replace("16-bit", "bf16")]

    by_format: dict[str, list[float]] = {}
    for own in rows:
        by_format.setdefault(own.number_format, []).append(full(own) / own.seconds)
    every = [share for shares in by_format.values() for share in shares]

    def estimate(own: Timed) -> float:
        return full(own) / statistics.median(by_format.get(own.number_format, every))

    return estimate


def errors_left_out(
    rows: Sequence[Timed], learn: Callable[[Sequence[Timed]], Callable[[Timed], float]]
) -> dict[str, list[float]]:
    """Model -> relative errors of its rows, by what was learned from the other models."""
    errors = {}
    for model in dict.fromkeys(own.model for own in rows):
        estimate = learn([own for own in rows if own.model != model])
        its = [own for own in rows if own.model == model]
        errors[model] = [estimate(own) / own.seconds - 1 for own in its]
    return errors


Errors = Mapping[str, Sequence[float]]


def lines(options: Namespace) -> Iterator[str]:
    every = list(timed(options, options.predicted))
    bound = [own for own in every if own.host_bound_share <= HOST_BOUND]
    others = [own for own in timed(options, options.other) if own.host_bound_share <= HOST_BOUND]
    errors = errors_left_out(bound, fitted)
    rival = errors_left_out(bound, constant_mfu)
    yield "| model left out | GPU-bound rows | median error | nine of ten within | constant MFU |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    all_ours, all_rivals = ([*itertools.chain(*own.values())] for own in (errors, rival))
    for model, own in {**errors, "all": all_ours}.items():
        other = rival.get(model, all_rivals)
        yield (
            f"| {model} | {len(own)} | {_quantile(own, 0.5):.1%} | {_quantile(own, 0.9):.1%} "
            f"| {_quantile(other, 0.5):.1%}, {_quantile(other, 0.9):.1%} |"
        )
    yield from _by_compiler(bound, errors)
    yield from _by_technique(bound, errors)
    yield from _of_other_card(bound, others, errors)
    yield from regrets(every)
    fit = fitted(bound)
    yield from _host(every, fit)
    yield from _inside(every)
    yield "efficiencies:"
    yield from (f"  {kind}: {1 / factor:.3f}" for kind, factor in fit.factors.items())
    yield f"seconds_per_kernel: {fit.seconds_per_kernel:.2e}"
    yield f"seconds_per_optimizer_kernel: {fit.seconds_per_optimizer_kernel:.2e}"
    yield f"seconds_per_library_update: {fit.seconds_per_library_update:.2e}"
    yield f"seconds_per_step: {fit.seconds_per_step:.2e}"


def _by_compiler(bound: Sequence[Timed], errors: Errors) -> Iterator[str]:
    """The ends of the errors, which are the interval of a forecast, and the share of each model's
    rows that an interval of the others holds."""
    for is_compiled, name in ((False, "eager"), (True, "compiled")):
        own = _chosen(bound, errors, lambda row, kind=is_compiled: row.is_compiled is kind)
        every = [*itertools.chain(*own.values())]
        if not every:
            continue
        inside = 0
        for model, its in own.items():
            others = [*itertools.chain(*(own[other] for other in own if other != model))]
            low, high = _interval(others or its)
            inside += sum(1 / (1 + low) <= 1 / (1 + error) <= 1 + high for error in its)
        low, high = _interval(every)
        middle = f"median {_quantile(every, 0.5):.1%}, nine of ten {_quantile(every, 0.9):.1%}"
        yield f"{name}: {len(every)} rows, {middle}, interval [{low:.2f}, {high:.2f}]"
        yield f"  intervals of other models hold {inside / len(every):.1%}"


def _interval(errors: Sequence[float]) -> tuple[float, float]:
    """How much a forecast may be too high, and too low, with a margin for other models."""
    below, above = np.quantile(errors, _ENDS[1]), -np.quantile(errors, _ENDS[0])
    return max(0.0, _MARGIN * float(below)), max(0.0, _MARGIN * float(above / (1 - above)))


def _chosen(
    bound: Sequence[Timed], errors: Errors, is_chosen: Callable[[Timed], bool]
) -> dict[str, list[float]]:
    """Model -> the errors of its chosen rows; ``errors`` are in the order of ``bound``."""
    ordered = {model: iter(own) for model, own in errors.items()}
    chosen: dict[str, list[float]] = {}
    for own in bound:
        error = next(ordered[own.model])
        if is_chosen(own):
            chosen.setdefault(own.model, []).append(error)
    return chosen


def _by_technique(bound: Sequence[Timed], errors: Errors) -> Iterator[str]:
    yield "| technique | rows | bias | median error | nine of ten within |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name in sorted({name for own in bound for name in own.techniques}):
        chosen = _chosen(bound, errors, lambda own, name=name: name in own.techniques)
        its = [*itertools.chain(*chosen.values())]
        if len(its) >= _ENOUGH:
            ends = f"{_quantile(its, 0.5):.1%} | {_quantile(its, 0.9):.1%}"
            yield f"| {name} | {len(its)} | {statistics.median(its):+.1%} | {ends} |"


def _of_other_card(
    bound: Sequence[Timed], others: Sequence[Timed], errors: Errors
) -> Iterator[str]:
    """Rows of a card that the fit never sees, each by what was learned from other models."""
    yield "| other card, model | rows | bias | median error | nine of ten within |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    every = []
    for model in dict.fromkeys(own.model for own in others):
        fit = fitted([own for own in bound if own.model != model])
        its = [fit(own) / own.seconds - 1 for own in others if own.model == model]
        every += its
        ends = f"{_quantile(its, 0.5):.1%} | {_quantile(its, 0.9):.1%}"
        yield f"| {model} | {len(its)} | {statistics.median(its):+.1%} | {ends} |"
    low, high = _interval([*itertools.chain(*errors.values())])
    inside = sum(1 / (1 + 2 * low) <= 1 / (1 + error) <= 1 + 2 * high for error in every)
    ends = f"{_quantile(every, 0.5):.1%} | {_quantile(every, 0.9):.1%}"
    yield f"| all | {len(every)} | {statistics.median(every):+.1%} | {ends} |"
    yield f"twice the interval holds {inside / len(every):.1%}"


def regrets(every: Sequence[Timed]) -> Iterator[str]:
    """What the forecast's pick within each memory costs: how much faster the fastest measured row
    is that fits. The efficiencies are those of other models, and memory is the measured one."""
    yield "| model and data | memory | rows that fit | regret | the fastest is the forecast's |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for config in dict.fromkeys(own.config for own in every):
        its = [own for own in every if own.config == config]
        others = [own for own in every if own.model != its[0].model]
        fit = fitted([own for own in others if own.host_bound_share <= HOST_BOUND])
        for budget in _BUDGETS:
            fitting = [own for own in its if own.device_bytes <= budget * GIB]
            if len(fitting) < _ENOUGH:
                continue
            fitting.sort(key=lambda own: fit(own) / own.samples)
            speeds = [own.samples / own.seconds for own in fitting]
            regret, place = max(speeds) / speeds[0] - 1, speeds.index(max(speeds)) + 1
            yield f"| {config} | {budget} GiB | {len(fitting)} | {regret:.1%} | no. {place} |"


def _host(every: Sequence[Timed], fit: Fit) -> Iterator[str]:
    """The time of a launch on the hosts of host-bound rows, and what it says of all rows."""
    gap = fit.seconds_per_step
    rates = [(own.seconds - gap) / own.all_launches for own in every if own.host_bound_share > 0.9]
    middle = statistics.median(rates)
    spread = [float(np.quantile(rates, end)) / middle for end in (0.05, 0.95)]
    ends = f"{spread[0]:.2f} to {spread[1]:.2f}"
    yield f"host_seconds_per_kernel: {middle:.2e}, nine of ten rows {ends} times that"
    for title, rows in (
        ("GPU-bound", [own for own in every if own.host_bound_share <= HOST_BOUND]),
        ("host-bound", [own for own in every if own.host_bound_share > 0.9]),
    ):
        ratios = [(fit(own) - gap) / (own.all_launches * middle) for own in rows]
        surely, maybe = (sum(ratio < end for ratio in ratios) for end in spread)
        says = f"{surely} are said to be host-bound, {maybe - surely} to be either"
        yield f"{title}: {len(rows)} rows, of which {says}"


def _inside(every: Sequence[Timed]) -> Iterator[str]:
    """How many rows the intervals hold, by what is said of the host, each model by the others."""
    constants = learned()
    held: dict[str, list[bool]] = {"gpu": [], "either": [], "host": []}
    for model in dict.fromkeys(own.model for own in every):
        others = [own for own in every if own.model != model]
        fit = fitted([own for own in others if own.host_bound_share <= HOST_BOUND])
        for own in (row for row in every if row.model == model):
            host = own.all_launches * constants["host_seconds_per_kernel"]
            between = fit.seconds_per_step
            said = interval(fit(own) - between, host, between, is_compiled=own.is_compiled)
            held[said.bound].append(said.low <= own.seconds <= said.high)
    for bound, own in held.items():
        inside = f"the intervals hold {sum(own) / max(1, len(own)):.1%}"
        yield f"said to be limited by {bound}: {len(own)} rows, of which {inside}"


def _quantile(errors: Sequence[float], share: float) -> float:
    return float(np.quantile(np.abs(errors), share))
