"""The rows of an example, and how they become batches."""

from __future__ import annotations

from tests.benchmarks.breadth.draft import Draft
from tests.benchmarks.breadth.example import Example


def translate_rows(example: Example, draft: Draft) -> None:
    """The data, the length of a sample, and batches of rows of unequal length."""
    length = int(example.take("sequence_len", 512))
    draft.axes["sequence_length"] = length
    _translate_data(example, draft, length)
    _translate_batching(example, draft)
    held_out = example.number("val_set_size")
    # A part of the rows is evaluated, so what fits includes an evaluation and a checkpoint.
    if held_out:
        draft.measure["evaluate_and_save"] = True


def _translate_data(example: Example, draft: Draft, length: int) -> None:
    # Rows of token ids with a label for each: prompts that the loss leaves out are labels of -100.
    example.ignore("test_datasets", "train_on_inputs")
    names = [str(entry.get("path")) for entry in example.take("datasets") or ()]
    if any("audio" in name for name in names):
        draft.miss("data: rows with audio")
    columns = {"input_ids": "input_ids", "labels": "labels"}
    if draft.model.get("task") == "image-text-to-text":
        # Chats with images, of which the model's own processor makes the batches.
        columns = {"images": "images", "messages": "messages"}
    draft.data["file"] = {"path": "rows.parquet", "columns": columns, "max_length": length}
    streams = example.is_on("streaming") or example.is_on("pretraining_dataset")
    example.ignore("streaming_multipack_buffer_size", "pretrain_multipack_attn")
    if streams:
        draft.miss("data: rows that are streamed while training")
    _translate_preferences(example, draft)


def _translate_preferences(example: Example, draft: Draft) -> None:
    """The loop for pairs of answers, and the columns of its rows."""
    method = example.take("rl")
    if method is None:
        return
    if method != "dpo":
        draft.miss(f"loop: {str(method).upper()}")
        return
    beta = example.number("rl_beta")
    draft.axes["loop"] = "trl_dpo" if beta is None else {"trl_dpo": {"beta": beta}}
    # Pairs are texts or messages, which a tokenizer turns into tokens.
    draft.data["file"]["columns"] = {name: name for name in ("prompt", "chosen", "rejected")}
    draft.data["file"]["tokenizer"] = "tokenizer"


def _translate_batching(example: Example, draft: Draft) -> None:
    is_packed = example.is_on("sample_packing") or example.is_on("max_packed_sequence_len")
    pads_fully = example.is_on("pad_to_sequence_len")
    example.ignore("sample_packing_sequentially")
    if is_packed:
        # Whole rows in bins, as axolotl packs them. What it pads of a bin is less than any row.
        draft.axes["batching"] = "packed_whole_rows"
    elif pads_fully:
        draft.axes["batching"] = "pad_to_length"
    elif example.is_on("group_by_length"):
        draft.axes["batching"] = "group_by_length"
    example.ignore("group_by_length")
    if example.is_on("curriculum_sampling") and not is_packed:
        draft.miss("batching: rows in the order of the file")
