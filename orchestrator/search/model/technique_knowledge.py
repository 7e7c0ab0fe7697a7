"""What the frontier search expects of techniques before it measures any: data only.

A wrong row costs trials or recall, never a wrong measurement. Techniques without a row get no
special treatment.
"""

from __future__ import annotations

from collections.abc import Mapping

from jobs.spec import Choice

SIMILAR_TO: Mapping[str, Mapping[Choice, Choice]] = {
    # Both keep 32-bit weights and multiply on 16-bit tensor cores. If one host measured both,
    # fp16 reached 0.97 to 0.98 of bf16's speed.
    "precision": {"fp16": "bf16"},
}
"""Axis -> value -> the value that its costs are expected to be close to."""

HOST_WORK_INCLUDES: Mapping[str, Mapping[Choice, tuple[Choice, ...]]] = {
    # fp32 and tf32 launch the same operations. Autocast adds its casts to them (bf16), and loss
    # scaling adds its own operations to those (fp16).
    "precision": {
        "fp32": ("tf32",),
        "tf32": ("fp32",),
        "bf16": ("fp32", "tf32"),
        "fp16": ("bf16", "fp32", "tf32"),
    },
}
"""Axis -> value -> the values that ask no more work of the host than it does."""

NO_DEVICE_MEMORY = frozenset({"dataloader", "loop"})
"""Axes that change how a step is fed and driven, not what the GPU keeps."""


def representative(axis: str, value: Choice) -> Choice:
    """The value that stands for ``value`` and all that are similar to it."""
    return SIMILAR_TO.get(axis, {}).get(value, value)


def includes_host_work_of(axis: str, value: Choice, other: Choice) -> bool:
    """Whether ``value`` asks at least the host work of ``other``."""
    return other == value or other in HOST_WORK_INCLUDES.get(axis, {}).get(value, ())
