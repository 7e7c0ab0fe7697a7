"""train.py and its README, rendered from templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from jobs.spec import Task, TrialSpec
from orchestrator.export.rebuilt_spec import NotExportableError
from orchestrator.export.source_lifting import lifted

AUTO_CLASSES: Mapping[Task, str] = {
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "image-classification": "AutoModelForImageClassification",
}
"""As in ``jobs.trial.models``, which cannot be read here: it imports torch."""

_LOOPS = {"jobs.loops.trainer:train": "trainer", "jobs.loops.accelerate:train": "accelerate"}
_COLLATORS: Mapping[Task, str] = {
    "token-classification": "DataCollatorForTokenClassification(tokenizer)",
    "causal-lm": "DataCollatorForLanguageModeling(tokenizer, mlm=False)",
    "masked-lm": "DataCollatorForLanguageModeling(tokenizer, mlm=True)",
    "seq2seq-lm": "DataCollatorForSeq2Seq(tokenizer)",
}


def train_script(spec: TrialSpec, label: str, *, peak_bytes: int | None = None) -> str:
    """The text of train.py; it prints its peak beside ``peak_bytes``, the row's.

    Raises NotExportableError for a hook whose code cannot stand alone.
    """
    hooks = {place: hook for place, hook in spec.recipe.hooks.items() if place != "loop"}
    return _render(
        "train.py.j2",
        spec,
        label,
        auto_class=AUTO_CLASSES[spec.model.task],
        collator=_COLLATORS.get(spec.model.task, "DataCollatorWithPadding(tokenizer)"),
        trust=f"trust_remote_code={spec.model.trust_remote_code}",
        model_kwargs={"dtype": "float32", **spec.recipe.model_kwargs},
        hooks={place: _lifted_hook(*hook) for place, hook in hooks.items()},
        decay_groups=lifted("jobs.techniques.axes.optimizer:decay_groups"),
        peak=peak_bytes,
    )


def readme(spec: TrialSpec, label: str, measured: Mapping[str, str], notes: Sequence[str]) -> str:
    """The text of README.md: ``measured`` are figures by name, ``notes`` what a reader must know."""
    return _render(
        "README.md.j2", spec, label, measured=measured, notes=notes, hooks=spec.recipe.hooks
    )


def _render(template: str, spec: TrialSpec, label: str, **own: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("orchestrator.export", ""),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["text"] = _text
    environment.globals["given"] = _given
    return environment.get_template(template).render(
        label=label,
        model=spec.model,
        file=spec.data.file,
        synthetic=spec.data.synthetic,
        deepspeed=spec.recipe.deepspeed is not None,
        accumulation=spec.accumulation,
        loop=_loop(spec),
        **own,
    )


def _loop(spec: TrialSpec) -> str:
    path, _ = spec.recipe.hooks.get("loop", ("jobs.loops.trainer:train", {}))
    if path not in _LOOPS:
        raise NotExportableError(f"the loop {path} is known to this project only")
    return _LOOPS[path]


def _lifted_hook(path: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"name": path.partition(":")[2], "source": lifted(path), "kwargs": kwargs}
    except (KeyError, ValueError) as error:
        raise NotExportableError(f"{path} cannot stand alone: {error}") from error


def _given(first: Sequence[str], kwargs: Mapping[str, Any]) -> str:
    """What stands between a call's brackets, a line each where it is long; a dtype's name becomes torch's object."""
    words = [
        f"{name}={f'torch.{value}' if name == 'dtype' else _text(value)}"
        for name, value in kwargs.items()
    ]
    parts = [*first, *words]
    if len(together := ", ".join(parts)) < 60:
        return together
    return "".join(f"\n        {part}," for part in parts) + "\n    "


def _text(value: Any) -> str:
    """A plain value as Python, in double quotes."""
    text = repr(value)
    return text if '"' in text else text.replace("'", '"')
