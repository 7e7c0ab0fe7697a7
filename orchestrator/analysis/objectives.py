"""The figures that configurations can be ranked by: speed, energy, money, host memory."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.repeatability import energy_error
from orchestrator.storage.tables.rows import Row
from orchestrator.units import HOUR_SECONDS

CACHE_HITS = ("compile_cache_hits", "inductor_cache_hits")
"""Columns that count what came from the node's compile cache, which hides what compiling costs."""
Figure = Callable[[Configuration, float | None], float | None]
"""A configuration's figure, at dollars per GPU hour; None if it was not measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """A figure to rank configurations by."""

    name: str
    unit: str
    of: Figure
    higher_is_better: bool = False
    of_any_samples: bool = False
    """Whether the figure compares configurations whose samples differ, such as in their length."""
    needs_price: bool = False
    """Whether the figure follows from the price of a GPU."""
    error95: Callable[[Configuration], float | None] = attrgetter("error95")
    """Half the relative 95 % interval of another trial's figure, if known: by default the
    speed's."""

    def check_price(self, price_per_hour: float | None) -> None:
        """Raise ValueError if the price is missing where it is needed, or is not above zero."""
        if price_per_hour is None:
            if self.needs_price:
                raise ValueError(f"{self.name} needs price_per_hour")
        elif not 0 < price_per_hour < math.inf:
            raise ValueError("price_per_hour must be a number above zero")

    def score(self, configuration: Configuration, price_per_hour: float | None = None) -> float:
        """The figure with its sign set so that more is better; minus infinity if it is missing."""
        figure = self.of(configuration, price_per_hour)
        if figure is None:
            return -math.inf
        return figure if self.higher_is_better else -figure


def _host_memory(configuration: Configuration, _: float | None) -> float | None:
    peak = configuration.row.get("host_peak_resident_bytes")
    return None if peak is None else float(peak)


def joules_per_sample(row: Row) -> float | None:
    """GPU energy per sample in joules; in older tables, from the energy of the counted steps."""
    if row.get("joules_per_sample") is not None:
        return float(row["joules_per_sample"])
    if row.get("energy_joules") is None or not row.get("counted_seconds"):
        return None
    # Energy was recorded over the counted steps alone, so it is divided by their samples.
    counted_samples = row["samples_per_second"] * row["counted_seconds"]
    return float(row["energy_joules"] / counted_samples)


def _energy_error95(configuration: Configuration) -> float | None:
    half_width = energy_error(configuration.row).of_another_trial().half_width95
    return half_width if math.isfinite(half_width) else None


def dollars_per_million(configuration: Configuration, price_per_hour: float | None) -> float | None:
    """Dollars for a million samples, from dollars per GPU hour; None without a price."""
    if price_per_hour is None:
        return None
    seconds = configuration.gpus * 1_000_000 / configuration.samples_per_second
    return price_per_hour / HOUR_SECONDS * seconds


OBJECTIVES: Mapping[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective(
            name="samples_per_second",
            unit="samples/s",
            higher_is_better=True,
            of=lambda configuration, _: configuration.samples_per_second,
        ),
        Objective(
            name="tokens_per_second",
            unit="tokens/s",
            higher_is_better=True,
            of_any_samples=True,
            of=lambda configuration, _: configuration.real_tokens_per_second,
        ),
        Objective(
            name="joules_per_sample",
            unit="J per sample",
            of=lambda configuration, _: joules_per_sample(configuration.row),
            error95=_energy_error95,
        ),
        Objective(
            name="dollars_per_million",
            unit="dollars per million samples",
            of=dollars_per_million,
            needs_price=True,
        ),
        Objective(
            name="host_memory", unit="bytes of host memory", of=_host_memory, error95=lambda _: None
        ),
    )
}


def over_steps(steps: int) -> Objective:
    """The speed of a training of so many steps, with its slow first step and all compiling. It is
    not known where an earlier trial had left the code in the compiler's cache."""

    def speed(configuration: Configuration, _: float | None) -> float | None:
        row = configuration.row
        if row.get("first_step_seconds") is None or any(map(row.get, CACHE_HITS)):
            return None
        step_seconds = configuration.effective_batch / configuration.samples_per_second
        # The first step compiles, too; steps that meet new lengths may compile again.
        compiling = row.get("compile_seconds") or 0.0
        once = max(row["first_step_seconds"] - step_seconds, compiling, 0.0)
        samples = steps * configuration.effective_batch
        return float(samples / (once + steps * step_seconds))

    return Objective(
        name="samples_per_second_over_steps",
        unit=f"samples/s over {steps:,} steps, first step and compiling included",
        higher_is_better=True,
        of=speed,
    )


def objective_of(name: str) -> Objective:
    """The objective of a name. Raises ValueError, which lists the names, if there is none."""
    if name not in OBJECTIVES:
        raise ValueError(f'no objective "{name}"; valid choices: {", ".join(OBJECTIVES)}')
    return OBJECTIVES[name]
