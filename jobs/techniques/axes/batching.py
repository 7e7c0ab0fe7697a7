"""Batching axis: how rows of unequal length become batches."""

from collections.abc import Callable, Mapping
from typing import Any

from jobs.spec import Hook
from jobs.techniques.hooks import hook
from jobs.techniques.variant import OTHER_WORKLOAD, Axis, Variant, add

Collate = Callable[[list[Any]], Mapping[str, Any]]
"""From a list of rows to a batch."""

BATCHING = Axis(
    name="batching",
    doc="How rows of unequal length become batches",
    default="pad",
    variants={
        "pad": Variant(doc="Random rows in one batch, padded to its longest row"),
        "pad_to_64": Variant(
            doc="Random rows in one batch, padded to a multiple of 64 tokens: there are fewer "
            "lengths that kernels are prepared or compiled for",
            hooks={"batching": Hook("padded_to_multiple", {"multiple": 64})},
            numerical_effect="rounding",
            traits=("trainer_batches",),
        ),
        "group_by_length": Variant(
            doc="Rows of similar length in one batch: less padding, but another order of the data",
            training_arguments={"train_sampling_strategy": "group_by_length"},
            requires=("tokens",),
            numerical_effect="training",
            traits=("trainer_batches",),
        ),
        "padding_free": Variant(
            doc="Random rows joined to one sequence without padding; attention stays within a row",
            hooks={"batching": Hook("flattened_rows")},
            requires=("task:causal-lm",),
            numerical_effect="rounding",
            traits=("trainer_batches", "packed_rows"),
        ),
        "packed": Variant(
            doc="All rows joined, and cut into full blocks of the sequence length; attention stays "
            "within a row. A sample is a block, not a row",
            hooks={"batching": Hook("packed_rows")},
            requires=("task:causal-lm",),
            numerical_effect="training",
            traits=("trainer_batches", "packed_rows", OTHER_WORKLOAD),
        ),
        "packed_whole_rows": Variant(
            doc="Whole rows joined to blocks of at most the sequence length, by best fit; "
            "attention stays within a row. The micro-batch counts blocks, but a sample is a row",
            hooks={"batching": Hook("packed_whole_rows")},
            requires=("task:causal-lm",),
            numerical_effect="training",
            traits=("trainer_batches", "packed_rows"),
        ),
    },
)
add(BATCHING)


@hook("padded_to_multiple")
def padded_to_multiple(
    dataset: Any, collate: Any, *, attention: str, tokens: int, multiple: int
) -> tuple[Any, Any]:
    """The unchanged dataset, and its collator, which pads to the next ``multiple`` of tokens.
    Raises ValueError for a collator that cannot."""
    own = getattr(collate, "__wrapped__", collate)  # another hook may have wrapped it
    if not hasattr(own, "pad_to_multiple_of"):
        raise ValueError("the collator of these rows does not pad them to a multiple of tokens")
    own.pad_to_multiple_of = multiple
    return dataset, collate


@hook("flattened_rows")
def flattened_rows(
    dataset: Any, collate: Collate, *, attention: str, tokens: int
) -> tuple[Any, Any]:
    """The unchanged dataset, and a collator that joins rows to a batch of shape (1, all tokens).
    ``attention`` is the name of the implementation in transformers; empty: the model's own. As
    ``position_ids`` begin at 0 in each row, transformers keeps attention within a row."""
    return dataset, _joining(lambda row: _unpadded(collate([row])), attention, _count_rows)


@hook("packed_rows")
def packed_rows(dataset: Any, collate: Collate, *, attention: str, tokens: int) -> tuple[Any, Any]:
    """Blocks of ``tokens`` tokens without padding, and their collator. If a row reaches into the
    next block, its rest counts as a new row there. Last tokens that fill no block are left out.
    Raises ValueError if all rows together fill none."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    packed = dataset.with_format(None).map(
        _block_maker(tokens),
        batched=True,
        remove_columns=dataset.column_names,
        load_from_cache_file=False,
        keep_in_memory=True,
    )
    if len(packed) == 0:
        raise ValueError(f"all rows together have fewer tokens than one block of {tokens}")
    packed.set_format("pt")
    if not takes_row_lengths(attention):
        return packed, transformers.default_data_collator

    def count_blocks(inputs: Mapping[str, Any]) -> int:
        return int(inputs["input_ids"].numel()) // tokens

    # One sequence is the form in which these kernels take rows.
    return packed, _joining(dict, attention, count_blocks)


@hook("packed_whole_rows")
def packed_whole_rows(
    dataset: Any, collate: Collate, *, attention: str, tokens: int
) -> tuple[Any, Any]:
    """Blocks of whole rows without padding, and a collator that joins a batch's to one sequence. A
    block has at most ``tokens`` tokens, to which longer rows are cut."""
    import datasets

    rows = []
    for row in dataset.with_format(None):
        real = _real_tokens(row)
        if real["input_ids"]:
            rows.append({name: values[:tokens] for name, values in real.items()})
    columns: dict[str, list[list[int]]] = {"input_ids": [], "labels": [], "position_ids": []}
    blocks = _blocks_of_rows([len(row["input_ids"]) for row in rows], tokens)
    for block in blocks:
        for name, values in columns.items():
            values.append([value for index in block for value in rows[index][name]])
    packed = datasets.Dataset.from_dict(columns)
    packed.set_format("pt")
    joined: Any = _joining(dict, attention, _count_rows)
    joined.samples_of_rows = list(map(len, blocks))
    return packed, joined


def _joining(
    part: Callable[[Any], dict[str, Any]], attention: str, count: Callable[[Mapping[str, Any]], Any]
) -> Collate:
    """A collator that joins the ``part`` of each row to one sequence; ``count`` counts samples."""

    def collated(rows: list[Any]) -> dict[str, Any]:
        return one_sequence([part(row) for row in rows], attention)

    collated.count_samples = count  # type: ignore[attr-defined]
    collated.flattens_rows = True  # type: ignore[attr-defined]
    return collated


def _count_rows(inputs: Mapping[str, Any]) -> Any:
    """The number of rows in a batch, as a scalar tensor on its device."""
    return (inputs["position_ids"] == 0).sum()


def _blocks_of_rows(lengths: list[int], tokens: int) -> list[list[int]]:
    """The indices of the rows of each block; blocks are in the order of their first row. By *best
    fit decreasing* for bin packing: from the longest row to the shortest, each goes into the
    fullest block that has room for it."""
    import bisect

    blocks: list[list[int]] = []
    # (free tokens, index) of each block that is not full, sorted by the free tokens.
    room: list[tuple[int, int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        fitting = bisect.bisect_left(room, (lengths[index], -1))
        if fitting == len(room):
            blocks.append([])
            room.append((tokens, len(blocks) - 1))
        free, block = room.pop(fitting)
        blocks[block].append(index)
        if free > lengths[index]:
            bisect.insort(room, (free - lengths[index], block))
    return sorted(sorted(block) for block in blocks)


def _block_maker(tokens: int) -> Callable[[Mapping[str, list[Any]]], dict[str, list[list[int]]]]:
    """A function from rows to full blocks; what is left begins the first block of the next call."""
    rest: dict[str, list[int]] = {"input_ids": [], "labels": [], "position_ids": []}

    def blocks(rows: Mapping[str, list[Any]]) -> dict[str, list[list[int]]]:
        for index in range(len(rows["input_ids"])):
            single = {name: rows[name][index] for name in rows}
            for name, values in _real_tokens(single).items():
                rest[name] += values
        full = _taken_blocks(rest, tokens)
        for labels, positions in zip(full["labels"], full["position_ids"], strict=True):
            _begin_anew(labels, positions)
        return full

    return blocks


def _taken_blocks(rest: dict[str, list[int]], tokens: int) -> dict[str, list[list[int]]]:
    """The full blocks, which are taken out of ``rest``."""
    end = len(rest["input_ids"]) // tokens * tokens
    full = {}
    for name, values in rest.items():
        full[name] = [values[begin : begin + tokens] for begin in range(0, end, tokens)]
        rest[name] = values[end:]
    return full


def _begin_anew(labels: list[int], positions: list[int]) -> None:
    """Let a row that reaches into a block begin there: at position 0, without a label."""
    labels[0] = -100
    length = positions.index(0, 1) if 0 in positions[1:] else len(positions)
    positions[:length] = range(length)


def _unpadded(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The tokens and labels of a batch of one row, each of shape (tokens,), without padding."""
    import torch

    ids = batch["input_ids"][0]
    labels = batch.get("labels", batch["input_ids"])[0].clone()
    mask = batch.get("attention_mask")
    if mask is not None:
        ids = ids[mask[0].bool()]
        labels = labels[mask[0].bool()]
    # The last token of the previous row must not predict the first token of this row.
    labels[:1] = -100
    return {"input_ids": ids, "labels": labels, "position_ids": torch.arange(len(ids))}


def one_sequence(parts: list[dict[str, Any]], attention: str) -> dict[str, Any]:
    """Rows of shape (tokens,) as one batch of shape (1, all tokens)."""
    import torch

    batch: dict[str, Any] = {}
    for name in ("input_ids", "labels", "position_ids"):
        batch[name] = torch.cat([part[name] for part in parts])[None]
    if takes_row_lengths(attention):
        # Without these, the kernels would compute in every layer where rows begin.
        positions = batch["position_ids"][0]
        begins = torch.nonzero(positions == 0).flatten()
        ends = torch.cat([begins, torch.tensor([len(positions)])]).to(torch.int32)
        longest = int(ends.diff().max())
        batch |= {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends}
        batch |= {"max_length_q": longest, "max_length_k": longest}
    return batch


def takes_row_lengths(attention: str) -> bool:
    """Whether an implementation of attention takes the beginnings of rows instead of a mask."""
    return any(name in attention for name in ("flash", "varlen", "xformers"))


def _real_tokens(row: Mapping[str, Any]) -> dict[str, list[int]]:
    """The tokens, labels and positions of a row of lists, without padding."""
    ids = list(row["input_ids"])
    labels = list(row.get("labels") or ids)
    mask = row.get("attention_mask")
    if mask is not None:
        ids = [value for value, is_real in zip(ids, mask, strict=True) if is_real]
        labels = [value for value, is_real in zip(labels, mask, strict=True) if is_real]
    if labels:
        labels[0] = -100
    return {"input_ids": ids, "labels": labels, "position_ids": list(range(len(ids)))}
