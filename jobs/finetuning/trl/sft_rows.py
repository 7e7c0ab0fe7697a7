"""Prepares rows with TRL's code: chat templates, masks of prompts, packing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from jobs.finetuning.trl.parameters import PACKED, checked_sft, refusal
from jobs.finetuning.trl.raw_rows import RawRows, raw_rows_of_file, raw_rows_of_tokens
from jobs.loops.trainer import COUNT
from jobs.spec import DataSpec
from jobs.trial.data import load


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """The settings of TRL's collator. The rows hook returns them in place of a collator."""

    tokenizer: Any
    width: int | None
    """Number of tokens to which every batch is padded; None: the length of its longest row."""
    flattens_rows: bool = False  # whether a batch is one sequence without padding
    counts_rows: bool = False  # whether the shape of a batch does not say how many rows it holds
    samples_of_rows: Sequence[int] | None = None  # of each block; None: a row is one sample
    left_out: float = 0.0  # share of the rows without room for a label; of blocks unknown, and 0

    @property
    def count_samples(self) -> Callable[[Mapping[str, Any]], int] | None:
        """Reads the number of rows of a batch; None: its shape says it."""
        return (lambda inputs: int(inputs[COUNT])) if self.counts_rows else None


def counting(
    collate: Callable[[list[Any]], dict[str, Any]], *, in_blocks: bool = False
) -> Callable[..., dict[str, Any]]:
    """A collator whose batches also have the number of their rows, or of the rows in its blocks."""

    def counted(rows: list[Any]) -> dict[str, Any]:
        samples = sum(len(row["seq_lengths"]) for row in rows) if in_blocks else len(rows)
        return {**collate(rows), COUNT: samples}

    return counted


def sft_rows(
    data: DataSpec,
    config: Any,
    *,
    samples: int | None,
    seed: int,
    batching: str,
    parameters: Mapping[str, Any],
) -> tuple[Any, PreparedRows]:
    """A trial's rows, prepared. Raises ValueError, in one sentence, for an unsuitable file."""
    rows = raw_rows(data, config, samples=samples, seed=seed)
    return prepared(rows, batching=batching, parameters=parameters)


def raw_rows(data: DataSpec, config: Any, *, samples: int | None, seed: int) -> RawRows:
    """The rows of a causal language model, before TRL's preparation; arguments as for ``load``."""
    if data.file is not None:
        return raw_rows_of_file(data.file, config, block_tokens=data.tokens, seed=seed)
    dataset, _ = load(data, "causal-lm", config, samples=samples, seed=seed)
    return raw_rows_of_tokens(dataset, config, block_tokens=data.tokens, seed=seed)


def prepared(
    rows: RawRows, *, batching: str, parameters: Mapping[str, Any]
) -> tuple[Any, PreparedRows]:
    """The rows with ``input_ids`` and ``labels``, cut and packed, and their collator's settings.
    ``batching`` names the trial's batching hook. Raises UnsupportedError with TRL's reason for rows
    or settings that TRL refuses."""
    given = checked_sft(parameters)
    is_packed = batching in PACKED
    limit = rows.block_tokens if is_packed else rows.tokens
    try:
        dataset = _prepared_by_trl(rows, given, limit=limit, is_packed=is_packed)
    except (RuntimeError, ValueError) as error:
        raise refusal("these rows", error) from error
    if len(dataset) == 0:
        raise ValueError("TRL leaves no row: each is longer than the limit before its answer")
    flattens = is_packed or batching == "flattened_rows"
    settings = PreparedRows(rows.tokenizer, rows.width, flattens, counts_rows=flattens)
    if not is_packed:
        settings = replace(settings, left_out=1 - len(dataset) / len(rows.dataset))
    if batching == "packed_whole_rows":
        settings = replace(settings, samples_of_rows=list(map(len, dataset["seq_lengths"])))
    return dataset, settings


def _prepared_by_trl(
    rows: RawRows, parameters: Mapping[str, Any], *, limit: int | None, is_packed: bool
) -> Any:
    """The dataset, prepared by the method of ``SFTTrainer``. It reads three attributes of the
    Trainer, which are set here as in its ``__init__`` of TRL 1.16."""
    from trl import SFTConfig, SFTTrainer

    # Without its constructor, which asks for a device: TRL's defaults are attributes of the class.
    settings: Any = SFTConfig.__new__(SFTConfig)
    vars(settings).update(parameters, seed=rows.seed, max_length=limit)
    tokenizer = rows.tokenizer
    columns = rows.dataset.column_names
    _set_end_token(tokenizer, settings.eos_token, columns)
    # By default, prompts are left out of the loss wherever there are prompts.
    completion_only = parameters.get("completion_only_loss")
    if completion_only is None:
        completion_only = {"prompt", "completion"}.issubset(columns)
    trainer = SimpleNamespace(
        _tokenizer=tokenizer, completion_only_loss=bool(completion_only), chat_template=None
    )
    if settings.assistant_only_loss:
        trainer.chat_template = _template_with_masks(tokenizer, rows.dataset[0])
    prepare: Any = SFTTrainer._prepare_dataset
    dataset = prepare(trainer, rows.dataset, tokenizer, settings, is_packed, None, "train")
    read = ("input_ids", "labels", "seq_lengths")  # by the collator
    return dataset.select_columns([name for name in read if name in dataset.column_names])


def _set_end_token(tokenizer: Any, token: str | None, columns: list[str]) -> None:
    """Raises ValueError if the tokenizer does not know the token, or if TRL needs one."""
    if token is not None:
        if token not in tokenizer.get_vocab():
            raise ValueError(f"the tokenizer has no token {token!r}, which eos_token names")
        tokenizer.eos_token = token
    is_text = "text" in columns or "completion" in columns
    if is_text and tokenizer.eos_token is None:
        raise ValueError("TRL ends each text with the tokenizer's end token, and it has none")


def _template_with_masks(tokenizer: Any, row: Mapping[str, Any]) -> str | None:
    """TRL's variant of the chat template that marks answers; None if the tokenizer's marks them."""
    from trl.chat_template_utils import get_training_chat_template, has_generation_markers
    from trl.data_utils import is_conversational

    if not is_conversational(dict(row)):
        raise ValueError(
            "assistant_only_loss is for chats: rows of messages, or a prompt and a completion of "
            "messages"
        )
    if has_generation_markers(tokenizer.chat_template):
        return None
    return get_training_chat_template(tokenizer)
