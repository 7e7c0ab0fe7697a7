"""Adapters, and names of weights to train, that the libraries refuse for the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from jobs.spec import Hook, HookPlace, TrialSpec, to_json
from orchestrator.labels import label
from orchestrator.planning.library_facts import NoAnswerError, answer_of
from orchestrator.planning.prechecks.mistakes import question_about

_PLACES: tuple[HookPlace, ...] = ("trained", "model")
_AXES = ("trainable", "adapter")


def refused_changes(trials: Sequence[TrialSpec], say: Callable[[str], object]) -> Iterator[str]:
    """A sentence for each change that is refused. ``say`` is called with a note first if the
    libraries must be asked, which takes some seconds."""
    changes = {_name(own): hooks for own in trials if (hooks := _hooks(own))}
    model = trials[0].model if changes else None
    if model is None or model.trust_remote_code:
        return
    question = {**question_about(model), "changes": [*changes.values()]}
    note = "asking PEFT and transformers whether they take these adapters, once for this model"
    try:
        answer = answer_of(question, note, say)
    except NoAnswerError:
        return
    for name, reason in zip(changes, answer["refused"], strict=False):
        if reason:
            yield f"every trial with {name} would end as unsupported: {reason}"


def _hooks(spec: TrialSpec) -> list[object]:
    given = (spec.settings.hooks.get(place) for place in _PLACES)
    return [to_json(own) for own in given if own is not None and not _suits_most_models(own)]


def _suits_most_models(hook: Hook) -> bool:
    """Whether it is LoRA in all linear layers, which nearly all models take."""
    parameters = hook.arguments.get("parameters", hook.arguments)
    is_lora = hook.name == "lora" or hook.arguments.get("method") == "lora"
    names_others = {"target_parameters", "modules_to_save"} & parameters.keys()
    return is_lora and parameters.get("target_modules") == "all-linear" and not names_others


def _name(spec: TrialSpec) -> str:
    return label({axis: spec.choices[axis] for axis in _AXES if axis in spec.choices}, _AXES)
