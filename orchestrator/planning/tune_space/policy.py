"""Which axes and values ``tune`` tries, as data.

``tune`` tries all values of all axes that do not change the training, except those listed here. So
a new technique is tried as soon as it has a row in ``jobs/techniques/axes``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OTHER_WORKLOADS: Mapping[str, str] = {
    "sequence_length": "another length of the texts is another workload",
}
"""Axis that always keeps the user's value -> the reason."""

NOT_TRIED: Mapping[str, Mapping[str, str]] = {
    "precision": {
        "bf16_tf32": "bf16, and TF32 for the little that autocast leaves in 32 bits",
    },
    "optimizer": {
        "adamw_foreach": "adamw_torch, built by hand",
        "adamw_forloop": "updates one tensor at a time, slower than any other AdamW",
    },
    "activations": {
        "checkpoint_reentrant": "an older implementation of checkpoint",
        "budget_0.1": "between budget_0.05 and budget_0.2",
        "offload": "moves activations over the bus, and was slower than checkpoint on three models",
    },
    "attention": {
        "sdpa": "what auto chooses",
        "sdpa_flash": "a kernel that auto may choose by itself",
        "sdpa_efficient": "a kernel that auto may choose by itself",
        "eager": "keeps the whole score matrix, slower and larger than any other",
        "xformers": "kernels that auto or flash_attention_2 have, from another source",
        "hub_flash_attention_2": "flash_attention_2 from another source",
        "hub_flash_attention_3": "flash_attention_3 from another source",
    },
    "offload": {
        "zero0": "on one GPU it saves nothing",
        "zero1": "on one GPU it saves nothing",
        "zero2": "on one GPU it saves nothing",
        "zero3": "on one GPU it saves little",
        "zero1_cpu_optimizer": "zero2_cpu_optimizer keeps the gradients on the host, too",
        "zero3_cpu_optimizer": "zero3_cpu_both keeps the parameters on the host, too",
        "zero3_cpu_parameters": "zero3_cpu_both keeps the optimizer on the host, too",
        "zero3_nvme_optimizer": "needs a fast disk, which the user must name",
        "zero3_nvme_both": "needs a fast disk, which the user must name",
    },
    "compile": {
        "aot_eager": "a debugging backend",
        "aot_eager_regional": "a debugging backend",
        "inductor_regional_any_batch": "inductor_regional, for batches of changing shape",
        "eager": "a debugging backend",
        "cudagraphs": "a backend without fused kernels",
        "inductor_max_autotune": "takes minutes to compile",
        "inductor_max_autotune_cudagraphs": "takes minutes to compile",
    },
    "dataloader": {
        "unpinned": "pinned memory is never slower",
        "workers_1": "workers_2 has one worker more",
        "workers_2_prefetch_4": "workers_4 prepares as many batches ahead",
    },
    "loop": {
        "accelerate": "leaves out clipping, the learning-rate schedule and logging",
    },
}
"""Axis -> value -> the reason why it is not tried. If the user's arguments set it, it is tried."""

FOR_QUANTIZED_WEIGHTS: Mapping[str, Mapping[str, str]] = {
    "base": {"dequantized": "its weights are not quantized, so 16bit is the same"},
}
"""Axis -> value that is tried only for a checkpoint of quantized weights -> the reason."""

FOR_UNEQUAL_ROWS: Mapping[str, Mapping[str, str]] = {
    "batching": {"*": "all rows are equally long, so there is no padding to save"},
    "attention": {"sdpa_no_cudnn": "all rows are equally long, so no new length is prepared for"},
}
"""Axis -> value (``*``: any) that is tried only if rows differ in length -> the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UsualChoice:
    """What most people train with, and other trainers choose, although it trains differently."""

    own: str
    """A regular expression of the user's values that it takes the place of."""
    value: str = ""
    """The value; empty: the user's own, with ``parameters``."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    words: str
    """What it trains differently."""


USUAL: Mapping[str, UsualChoice] = {
    "batching": UsualChoice(
        own="pad|pad_to_64|padding_free|group_by_length",
        value="packed_whole_rows",
        words="rows are packed into blocks, so a step trains on more of them",
    ),
    # axolotl and torchtune load the weights of a full training in bf16.
    "precision": UsualChoice(
        own="bf16",
        value="bf16_weights",
        words="all weights, gradients and optimizer states have 16 bits, so that small updates are "
        "rounded away",
    ),
    "optimizer": UsualChoice(
        own="adamw_(torch|torch_fused|foreach|forloop)",
        value="adamw_bnb_8bit",
        words="the optimizer keeps its states in 8 bits",
    ),
    # LLaMA-Factory has the parameter ``upcast_layernorm``, off by default; axolotl converts norms
    # and output layer to the compute type after PEFT's preparation.
    "base": UsualChoice(
        own=r"bnb_[48]bit(?!.*upcast=false).*",
        parameters={"upcast": False},
        words="norms, embeddings and the output layer of the base stay in 16 bits",
    ),
    # The script of the QLoRA paper converts its adapters to bf16.
    "adapter": UsualChoice(
        own=r"lora\((?!.*dtype=).*",
        parameters={"dtype": "bfloat16"},
        words="the adapter's weights and optimizer states have 16 bits",
    ),
}
"""Axis -> what ``tune`` offers as a second result, beside what trains like the user's arguments."""

ALONE = frozenset(
    {"optimizer", "offload", "adapter", "allocator", "base", "batching", "experts", "qat"}
    | {"trainable", "vision"}
)
"""Axes that are changed one at a time, and not together with those of ``NOT_WITH_ALONE``. The
effect of such an axis hardly depends on the other axes. All combinations would make the space
larger without a better answer."""
TOGETHER = frozenset({"adapter", "base"})
"""Axes of ``ALONE`` that are changed together, too: the frozen base is that of an adapter."""
USUAL_OF_ALL_WEIGHTS = frozenset({"precision"})
"""Axes of ``USUAL`` that are changed only without an adapter."""
USUAL_TOGETHER = (
    frozenset({"base", "batching"}),
    frozenset({"precision", "optimizer"}),
    frozenset(USUAL) - USUAL_OF_ALL_WEIGHTS,
    frozenset(USUAL),
)
"""Axes that have their values of ``USUAL`` together, as in the examples of other trainers, beside
what is changed with any of them."""
NOT_WITH_ALONE = frozenset({"compile", "attention", "dataloader", "loop"})
"""Axes that keep the user's value if an axis of ``ALONE`` is changed."""
EXCEPT = (frozenset({"base"}), frozenset({"compile"}))
"""Axes of ``ALONE`` and of ``NOT_WITH_ALONE`` that are changed together all the same, if the first
has the value of ``USUAL``. Otherwise the second result would lack what is fastest in the first."""

COMPILED_BATCHING = "pad_to_64"
"""Batching of compiled sets where rows differ in length and the user's is the default: otherwise
each length that is new compiles again."""

WITH_ONE_OTHER: Mapping[str, frozenset[str]] = {
    "precision": frozenset({"fp32", "tf32", "fp16", "bf16_weights"}),
    "activations": frozenset(
        {"checkpoint_every_2", "checkpoint_selective"}
        | {"checkpoint_offload", "checkpoint_offload_streams"}
    ),
    "attention": frozenset({"flash_attention_2", "flex_attention", "varlen"}),
    "dataloader": frozenset({"workers_2"}),
    "kernels": frozenset({"hub"}),
    # On two H100s (tests/data/two_gpus_h100), none of these was smaller than fsdp2_full, or faster
    # than ddp by more than 7 %.
    "sharding": frozenset({"zero1", "zero2", "zero3", "fsdp2_grad_op"}),
    "loss": frozenset({"cce"}),
    # On three recorded models, compiling the whole model was not faster than compiling its blocks,
    # and its trials took three times as long or longer. With tuned kernels it was faster for
    # BERT-large, but each such trial took minutes.
    "compile": frozenset({"inductor", "inductor_reduce_overhead", "inductor_tuned"}),
}
"""Axis -> values that are tried alone and with one other change, but not with more. Another value
of the axis is usually as good. So larger combinations, such as a compiled model with a memory
budget, a chunked loss and a loop that does not wait, fit the limit."""

AROUND: Mapping[str, str] = {"sharding": "ddp"}
"""Axis -> the value from which changes are counted where it is tried, in place of the user's.

Who asks for several GPUs has most to gain from sets that use them. Sets on one GPU remain, with one
change less."""

FASTER: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("precision", "fp32"): ("bf16", "fp16"),
    ("precision", "tf32"): ("bf16", "fp16"),
}
"""Axis and the user's value -> values that are faster on nearly every GPU, the best first.

Sets with more than two changes have the first of them that is tried. So the other changes need not
be combined with the slow value, too. A mixture of experts can be faster in tf32, which sets with
few changes show."""

NOT_TOGETHER: Mapping[tuple[str, str, str], str] = {
    ("loss", "liger", "compile"): "failed in both recorded trials; chunked runs compiled",
}
"""Axis, value, and another axis whose technique it is not combined with -> the reason."""

MAX_CONFIGURATIONS = 30_000
"""A larger space is reduced: first to fewer micro-batches, then to fewer changed axes at a time."""
