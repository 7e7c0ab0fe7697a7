"""The baseline that techniques are compared with, and the training recipe that is ranked."""

from collections.abc import Iterable, Mapping, Sequence

from jobs.spec import PLAIN, Choice, TrainingRecipe
from jobs.techniques import AXES
from orchestrator.analysis.configuration import Configuration
from orchestrator.labels import recipe_label

ChoicesAndRecipe = tuple[Mapping[str, Choice], TrainingRecipe]


def baseline_choices(
    configurations: Sequence[Configuration], asked: Mapping[str, Choice]
) -> dict[str, Choice]:
    """Axis -> the measured value that others are compared with: as asked, else the default, else
    the first."""
    wanted = _wanted(asked)
    chosen: dict[str, Choice] = {}
    for axis in configurations[0].choices if configurations else ():
        values = dict.fromkeys(configuration.choices[axis] for configuration in configurations)
        # Compared as text, because a table holds some numbers of the file as text.
        same = [value for value in values if axis in wanted and str(value) == str(wanted[axis])]
        default = [AXES[axis].default] if axis in AXES and AXES[axis].default in values else []
        chosen[axis] = next(iter([*same, *default, *values]))
    return chosen


def is_baseline(choices: Mapping[str, Choice], asked: Mapping[str, Choice]) -> bool:
    """Whether choices are as asked, else the default, on every axis: measured or not."""
    wanted = _wanted(asked)
    return all(str(value) == str(wanted.get(axis, value)) for axis, value in choices.items())


def ranked_recipe(
    candidates: Iterable[ChoicesAndRecipe], asked: Mapping[str, Choice]
) -> TrainingRecipe:
    """The recipe of the candidate that differs from the baseline on the fewest recipes' axes."""
    listed = list(candidates)
    axes = {axis for _, recipe in listed for axis in recipe.by_axis}
    wanted = {axis: str(value) for axis, value in _wanted(asked).items() if axis in axes}

    def distance(candidate: ChoicesAndRecipe) -> tuple[int, int, str]:
        choices, recipe = candidate
        differing = sum(str(choices.get(axis, value)) != value for axis, value in wanted.items())
        # The label makes the order of equally near and equally plain recipes stable.
        return differing, len(recipe.choices), recipe_label(recipe)

    _, nearest = min(listed, key=distance, default=({}, PLAIN))
    return nearest


def _wanted(asked: Mapping[str, Choice]) -> dict[str, Choice]:
    wanted: dict[str, Choice] = {axis: AXES[axis].default for axis in AXES}
    wanted.update(asked)
    effective_batch = wanted.pop("effective_batch", None)
    micro_batch = wanted["micro_batch"]
    if isinstance(effective_batch, int) and isinstance(micro_batch, int):
        wanted["accumulation"] = effective_batch // micro_batch
    return wanted
