"""The kinds of search that a sweep can name, and their options: data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOption:
    """One option of a search: a number between two bounds, or true or false."""

    type: type[int] | type[float] | type[bool]
    default: int | float | bool
    doc: str
    minimum: float = 0
    """The smallest valid value."""
    maximum: float | None = None
    """The largest valid value."""
    below: float | None = None
    """A bound that itself is not valid."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchKind:
    """One kind of search: it decides which trials of the plan run, and in which order."""

    doc: str
    options: Mapping[str, SearchOption] = field(default_factory=dict)


DEFAULT_KIND = "grid"
SEARCH_KINDS: Mapping[str, SearchKind] = {
    "grid": SearchKind(doc="measures every configuration of the plan"),
    "frontier": SearchKind(
        doc="measures the configurations that could be on the Pareto front of memory and speed, "
        "and skips the others with a reason",
        options={
            "tolerance": SearchOption(
                type=float,
                default=0.02,
                below=1,
                doc="skip a configuration that can beat a measured one by no more than this share",
            ),
            "audit_fraction": SearchOption(
                type=float,
                default=0.03,
                maximum=1,
                doc="share of the skipped configurations that are measured anyway, to check the "
                "search (at least two; 0: none)",
            ),
            "seed": SearchOption(
                type=int,
                default=0,
                doc="seed of the random choice of these configurations",
            ),
        },
    ),
    "best": SearchKind(
        doc="measures only what helps to find the fastest configuration in each budget, and says "
        "how much faster an unmeasured configuration could still be",
        options={
            "regret": SearchOption(
                type=float,
                default=0.01,
                below=1,
                doc="stop when the fastest unmeasured configuration is expected to be faster by "
                "less than this share",
            ),
            "confidence": SearchOption(
                type=float,
                default=0.95,
                minimum=0.5,
                below=1,
                doc="probability of the bound that the result states: no unmeasured "
                "configuration gains more",
            ),
            "any_recipe": SearchOption(
                type=bool,
                default=False,
                doc="also find the fastest configuration of all training recipes, with other "
                "optimizers, adapters and weight formats",
            ),
        },
    ),
}
