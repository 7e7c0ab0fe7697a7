"""The kinds of search that a sweep can name, and their options."""

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field

from orchestrator.planning.keys.config_types import Section, keys_of


class _SearchOptions(Section):
    is_space: ClassVar[bool] = False
    """Whether the plan is a space to choose from, of which only measured trials get a record."""

    @property
    def options(self) -> dict[str, Any]:
        """Name -> value of each option that has one."""
        return self.model_dump(exclude={"kind"}, exclude_none=True)


class GridOptions(_SearchOptions):
    """Measures every configuration of the plan."""

    kind: Literal["grid"] = "grid"


class FrontierOptions(_SearchOptions):
    """Measures the configurations that could be on the Pareto front of memory and speed, and skips
    the others with a reason."""

    kind: Literal["frontier"] = "frontier"
    tolerance: float = Field(default=0.02, ge=0, lt=1)
    """stop when, at every memory, the fastest unmeasured configuration is expected to be faster by
    less than this share"""
    audit_fraction: float = Field(default=0.03, ge=0, le=1)
    """share of the skipped configurations that are measured anyway, to check the search (at least
    two; 0: none)"""
    seed: int = Field(default=0, ge=0)
    """seed of the random choice of these configurations"""


class BestOptions(_SearchOptions):
    """Measures only what helps to find the fastest configuration in each budget, and says how much
    faster an unmeasured configuration could still be."""

    kind: Literal["best"] = "best"
    regret: float = Field(default=0.01, ge=0, lt=1)
    """stop when the fastest unmeasured configuration is expected to be faster by less than this
    share"""
    confidence: float = Field(default=0.95, ge=0.5, lt=1)
    """probability of the bound that the result states: no unmeasured configuration gains more"""
    any_recipe: bool = False
    """also find the fastest configuration of all training recipes, with other optimizers, adapters
    and weight formats"""


class TuneOptions(BestOptions):
    """The search of ``tune``, in a space that no file names."""

    is_space = True

    slot_seconds: float
    """GPU time for the search."""
    effective_batch: int | None = None
    """Samples per optimizer step of every configuration; None: any."""


SearchOptions = GridOptions | FrontierOptions | BestOptions
SEARCH_KINDS = {keys_of(search)["kind"].__args__[0]: search for search in get_args(SearchOptions)}
"""Kind -> its options."""
DEFAULT_SEARCH = GridOptions.model_construct()


def _mapping(value: Any) -> Any:
    """The name of a kind as a mapping, and a mapping without a kind with the default one."""
    if isinstance(value, str):
        return {"kind": value}
    if isinstance(value, dict):
        return {"kind": DEFAULT_SEARCH.kind, **value}
    raise ValueError("must be a kind of search or a mapping")


SearchChoice = Annotated[SearchOptions, Field(discriminator="kind"), BeforeValidator(_mapping)]
"""A search, written as its kind or as a mapping of its kind and its options."""
