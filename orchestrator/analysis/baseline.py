"""What techniques are compared with: the baseline's choices, and the training recipe that is
ranked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jobs.spec import PLAIN, Choice, TrainingRecipe
from jobs.techniques import AXES
from orchestrator.analysis.configuration import Configuration
from orchestrator.labels import recipe_label


def baseline_choices(
    configurations: Sequence[Configuration], asked: Mapping[str, Choice]
) -> dict[str, Choice]:
    """Axis -> the value that techniques are compared with: as asked, else the technique's default,
    else the first met.

    An asked ``effective_batch`` is turned into the accumulation that it means.
    """
    wanted = _wanted(asked)
    chosen: dict[str, Choice] = {}
    for axis in configurations[0].choices if configurations else ():
        values = list(dict.fromkeys(own.choices[axis] for own in configurations))
        chosen[axis] = _baseline_value(axis, values, wanted)
    return chosen


def _baseline_value(axis: str, values: Sequence[Choice], wanted: Mapping[str, Choice]) -> Choice:
    if axis in wanted:
        for value in values:
            if str(value) == str(wanted[axis]):
                return value
    if axis in AXES and AXES[axis].default in values:
        return AXES[axis].default
    return values[0]


def ranked_recipe(
    candidates: Iterable[tuple[Mapping[str, Choice], TrainingRecipe]], asked: Mapping[str, Choice]
) -> TrainingRecipe:
    """The recipe nearest to the baseline among (choices, recipe); of equally near ones, the
    plainer.

    Near is what differs from the baseline on the fewest axes that set any of the recipes apart.
    """
    listed = list(candidates)
    apart = {axis for _, recipe in listed for axis in recipe.by_axis}
    wanted = {axis: str(value) for axis, value in _wanted(asked).items() if axis in apart}

    def distance(candidate: tuple[Mapping[str, Choice], TrainingRecipe]) -> tuple[int, int, str]:
        choices, recipe = candidate
        differing = [
            axis for axis, value in wanted.items() if str(choices.get(axis, value)) != value
        ]
        return len(differing), len(recipe.choices), recipe_label(recipe)

    nearest = min(listed, key=distance, default=({}, PLAIN))
    return nearest[1]


def _wanted(asked: Mapping[str, Choice]) -> dict[str, Choice]:
    wanted: dict[str, Choice] = {axis: AXES[axis].default for axis in AXES}
    wanted.update(asked)
    effective_batch, micro_batch = wanted.pop("effective_batch", None), wanted["micro_batch"]
    if isinstance(effective_batch, int) and isinstance(micro_batch, int):
        wanted["accumulation"] = effective_batch // micro_batch
    return wanted
