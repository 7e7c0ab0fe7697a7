"""What building the model without memory tells: its size, and the changes that are refused.

A change is an adapter, or names of weights to train. One process of ``jobs.library_facts`` answers
all that no earlier command asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.spec import HookPlace, ModelSpec, TrialSpec, to_json
from orchestrator.labels import label
from orchestrator.planning.library_facts import NoAnswerError, answers_of, changed_at, digest

_SHIPPED = Path(__file__).with_name("shipped_sizes.json")
_PLACES: tuple[HookPlace, ...] = ("trained", "model")
_AXES = ("trainable", "adapter")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSize:
    """A model's size, or why it has none."""

    parameters: int | None = None
    """All of them, tied weights once; None if they could not be counted."""
    mistake: str = ""
    """Why transformers refuses to build the model: a value of its configuration is wrong."""
    reason: str = ""
    """Why the parameters could not be counted although nothing may be wrong."""


def size_and_refused(
    model: ModelSpec, changes: Mapping[str, Any], say: Callable[[str], object]
) -> tuple[ModelSize, tuple[str, ...]]:
    """The size of a model, and a sentence for each of the named changes that is refused. ``say`` is
    called with a note first if that takes some seconds."""
    if model.trust_remote_code:
        return ModelSize(reason="the checkpoint builds its model by code of its own"), ()
    shipped = json.loads(_SHIPPED.read_text(encoding="utf-8")).get(digest(to_json(model)))
    if shipped is not None:
        # These take LoRA in all linear layers, so nothing need be asked of it.
        changes = {name: own for name, own in changes.items() if not _is_in_all_linear(own)}
    question = _question_about(model)
    questions = [{**question, "change": own} for own in changes.values()]
    if shipped is None:
        questions.append(question)
    asked = "counting the parameters of" if shipped is None else "asking about adapters for"
    name = model.architecture or model.name_or_path
    note = f"{asked} {name}, once for this model (about ten seconds)"
    try:
        answers = answers_of(questions, note, say)
    except NoAnswerError as error:
        return ModelSize(parameters=shipped, reason=str(error)), ()
    size = ModelSize(parameters=shipped) if shipped is not None else ModelSize(**answers.pop())
    reasons = [(name, answer.get("refused")) for name, answer in zip(changes, answers, strict=True)]
    said = (
        f"every trial with {own} would end as unsupported: {why}" for own, why in reasons if why
    )
    return size, tuple(said)


def changes_of(trials: Sequence[TrialSpec]) -> dict[str, list[Any]]:
    """The hooks of each adapter, and of the names of weights to train, by its name."""
    changes = {}
    for trial in trials:
        given = map(trial.settings.hooks.get, _PLACES)
        if hooks := [to_json(own) for own in given if own is not None]:
            chosen = {axis: trial.choices[axis] for axis in _AXES if axis in trial.choices}
            changes[label(chosen, _AXES)] = hooks
    return changes


def _question_about(model: ModelSpec) -> dict[str, Any]:
    # A checkpoint in a folder may change and keep its name.
    changed = changed_at(Path(model.name_or_path, "config.json")) if model.name_or_path else 0
    return {"model": to_json(model), "changed_at": changed}


def _is_in_all_linear(change: Sequence[Mapping[str, Any]]) -> bool:
    """Whether it is LoRA in all linear layers and nothing else."""
    (name, arguments), *others = ((hook["name"], hook["arguments"]) for hook in change)
    parameters = arguments.get("parameters", arguments)
    is_lora = not others and "lora" in (name, arguments.get("method"))
    names_others = {"target_parameters", "modules_to_save"} & parameters.keys()
    return is_lora and parameters.get("target_modules") == "all-linear" and not names_others
