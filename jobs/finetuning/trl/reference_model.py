"""The reference of a preference training. train.py gets copies of the functions."""

from __future__ import annotations

from typing import Any


def reference_copy(model: Any) -> Any:
    """A copy of the model that no optimizer changes, on the same device.

    TRL would load the checkpoint a second time, which gives the same weights in the same format.
    TRL does not freeze these weights, so autocast keeps their 16-bit copies during the forward
    pass. A frozen copy would need less memory than TRL's training.
    """
    import copy

    return copy.deepcopy(model).eval()


def drop_copied_adapter(model: Any) -> None:
    """Remove the copy of a new adapter, so that the reference is the model without its adapter.

    TRL copies the adapter of a model that comes with one, because it may have been trained before.
    It makes no copy for an adapter that it creates itself.
    """
    if "ref" in getattr(model, "peft_config", {}):
        model.delete_adapter("ref")
