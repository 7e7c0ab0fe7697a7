"""Whether the libraries accept an adapter, or the names of weights to train, for a model."""

import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from jobs.errors import classify
from jobs.library_facts.model_size import without_memory
from jobs.record import Outcome
from jobs.spec import Hook, ModelSpec
from jobs.techniques.hooks import registered


def refusal(model: ModelSpec, hooks: Sequence[Hook]) -> dict[str, Any]:
    """Why a change of a model is ``refused``; empty if it is not, or if nothing can be said. Or the
    ``reason`` why the model cannot be built, which another time it may be."""
    try:
        built = without_memory(model)
    except Exception as error:
        return {"reason": str(error)}
    try:
        for hook in hooks:
            change = functools.partial(registered(hook.name), **hook.arguments)
            built = change(built, model.task, SimpleNamespace())
    except Exception as error:
        outcome, _, reason = classify(error)
        # What needs real weights says so, and may be possible with them.
        is_refused = outcome is Outcome.UNSUPPORTED and "meta" not in reason
        return {"refused": reason if is_refused and "installed" not in reason else ""}
    return {"refused": ""}
