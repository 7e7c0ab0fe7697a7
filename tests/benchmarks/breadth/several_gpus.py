"""Whether an example of axolotl is for several GPUs."""

from __future__ import annotations

from tests.benchmarks.breadth.example import Example

_SETTINGS = ("deepspeed", "fsdp", "fsdp_config", "use_ray")
_COUNTS = (
    "context_parallel_size",
    "dp_replicate_size",
    "dp_shard_size",
    "expert_parallel_size",
    "tensor_parallel_size",
    # a misspelling that one of the examples has
    "context_parapllel_size",
)


def key_for_several_gpus(example: Example) -> str:
    """The first key that divides the training among GPUs; empty if none does."""
    for key in _SETTINGS:
        if example.is_on(key):
            return key
    for key in _COUNTS:
        if (example.take(key) or 1) > 1:
            return key
    # They belong to the keys above.
    example.ignore("fsdp_version")
    return ""
