"""Allocator axis: settings of PyTorch's caching allocator on the GPU."""

from jobs.spec import Hook
from jobs.techniques.hooks import hook
from jobs.techniques.variant import Axis, Variant, add


def _with_settings(doc: str, settings: str) -> Variant:
    """``settings`` have the syntax of the environment variable PYTORCH_ALLOC_CONF."""
    return Variant(
        doc=doc,
        hooks={"allocator": Hook("allocator_settings", {"settings": settings})},
        requires=("cuda",),
    )


ALLOCATOR = Axis(
    name="allocator",
    doc="Settings of PyTorch's caching allocator on the GPU",
    default="default",
    variants={
        "default": Variant(doc="PyTorch's own settings, or those of PYTORCH_ALLOC_CONF"),
        "expandable_segments": _with_settings(
            "Segments that grow page by page: saves the memory that fragmentation wastes",
            "expandable_segments:True",
        ),
        "max_split_128": _with_settings(
            "Free blocks above 128 MiB are not split: less fragmentation, but blocks that stay "
            "partly unused",
            "max_split_size_mb:128",
        ),
        "roundup_power2": _with_settings(
            "Requests are rounded up to an eighth of a power of two: freed blocks are reused more "
            "often",
            "roundup_power2_divisions:8",
        ),
    },
)
add(ALLOCATOR)


@hook("allocator_settings")
def allocator_settings(*, settings: str) -> None:
    """Configure the allocator before its first allocation, in the syntax of PYTORCH_ALLOC_CONF."""
    import torch

    torch.cuda.memory._set_allocator_settings(settings)
