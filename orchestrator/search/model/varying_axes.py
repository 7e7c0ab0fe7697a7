"""The axes on which the curves of a plan differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from jobs.spec import Choice
from orchestrator.search.model.arrays import Array, Indices, Numbering
from orchestrator.search.model.candidates import Curve
from orchestrator.search.model.effects.technique_priors import TechniquePriors


@dataclass(frozen=True, kw_only=True, slots=True)
class VaryingAxis:
    """An axis with its values in the order in which curves first have them."""

    name: str
    """Empty for what is constant along a curve."""
    values: Sequence[Choice]
    codes: Indices
    """Index of each curve's value, shape (curves,)."""
    similarities: Array
    """Prior correlation of the effects of two values, shape (values, values)."""


def varying_axes(curves: Sequence[Curve], priors: TechniquePriors) -> list[VaryingAxis]:
    """The axes on which some of the curves differ, in alphabetical order."""
    choices: list[dict[str, tuple[str, object]]] = []
    for curve in curves:
        techniques = {axis: (kind, value) for axis, kind, value in curve.techniques}
        choices.append({"": ("str", str(curve.regime)), **techniques})
    varying = []
    for name in sorted(set().union(*choices)):
        numbers: Numbering[tuple[str, object]] = Numbering()
        codes = numbers.of(own.get(name, ("NoneType", None)) for own in choices)
        if len(numbers) > 1:
            values = [cast(Choice, value) for _, value in numbers]
            rows = [[priors.correlation(name, one, other) for other in values] for one in values]
            varying.append(
                VaryingAxis(name=name, values=values, codes=codes, similarities=np.array(rows))
            )
    return varying
