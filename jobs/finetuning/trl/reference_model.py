"""The reference of a preference training. train.py gets copies of the functions."""

from typing import Any


def reference_copy(model: Any) -> Any:
    """A copy of the model that no optimizer changes, on the same device. TRL loads the checkpoint a
    second time and does not freeze it, so autocast keeps 16-bit copies in the forward pass. A
    frozen copy would need less memory than TRL's training."""
    import copy

    return copy.deepcopy(model).eval()


def drop_copied_adapter(model: Any) -> None:
    """Remove the copy of a new adapter, so that the reference is the model without its adapter. TRL
    copies an adapter that it did not create, because it may have been trained before."""
    if "ref" in getattr(model, "peft_config", {}):
        model.delete_adapter("ref")
