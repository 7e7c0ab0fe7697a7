"""The user's own images with texts, made into batches by the model's own processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jobs.spec import DatasetFile
from jobs.trial.data.collators import IGNORED
from jobs.trial.data.decoded_images import opened
from jobs.trial.data.recognition import Source
from jobs.trial.data.tokenizing import require_chats, tokenizer_name
from jobs.trial.data.user_file import rows_of_file

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def images_of_file(file: DatasetFile, config: PretrainedConfig) -> tuple[Any, ProcessRows]:
    """The file with a text, token ids and labels for each row, and the collator of its images.
    Raises ValueError for rows that the processor cannot take."""
    dataset, source = rows_of_file(file, "image-text-to-text")
    processor = _loaded_processor(tokenizer_name(file, source))
    if source == "messages" and not getattr(processor, "chat_template", None):
        raise ValueError(
            f"the processor {file.tokenizer} has no chat template, which rows of messages need: "
            "put a chat_template.jinja beside it"
        )
    rows = _Rows(processor, file, source, config.image_token_id)
    # What the collator needs, and what says how long the row is.
    kept = ("images", "text", "input_ids", "labels")
    replaced = [name for name in dataset.column_names if name not in kept]
    dataset = dataset.map(rows.prepared, remove_columns=replaced, with_indices=True)
    return dataset, ProcessRows(processor, file)


@dataclass(frozen=True, slots=True)
class ProcessRows:
    """Makes a batch of rows: the processor reads texts and images again, and pads."""

    tokenizer: Any  # the processor, which an exported training saves beside the model
    _file: DatasetFile

    def __call__(self, rows: list[Any]) -> dict[str, torch.Tensor]:
        """Name -> tensor: token ids, labels and masks of (rows, longest), and all images."""
        images = [opened(row["images"], self._file) for row in rows]
        batch = _encoded(self.tokenizer, [row["text"] for row in rows], images)
        tokens = batch["input_ids"].shape[1]
        longest = max(len(row["input_ids"]) for row in rows)
        for name, tensor in batch.items():
            # Only the inputs that have a value for each token are as long as the longest row.
            if tensor.shape == (len(rows), tokens):
                batch[name] = tensor[:, :longest]
        labels = [torch.tensor(row["labels"]) for row in rows]
        batch["labels"] = torch.nn.utils.rnn.pad_sequence(
            labels, batch_first=True, padding_value=IGNORED
        )
        return batch


@dataclass(frozen=True, slots=True)
class _Rows:
    _processor: Any
    _file: DatasetFile
    _source: Source
    _image_token: int

    def prepared(self, row: Mapping[str, Any], index: int) -> dict[str, Any]:
        """The columns ``text``, ``input_ids`` and ``labels`` of the row."""
        images = opened(row["images"], self._file)
        prompt, text = self._texts(row, len(images), index)
        whole = self._ids(text, images)
        # The loss leaves out the prompt, which has as many tokens as the prompt alone.
        learnt_from = 0 if prompt is None else len(self._ids(prompt, images))
        ids = whole[: self._file.max_length]
        if ids.count(self._image_token) < whole.count(self._image_token):
            raise ValueError(
                f"row {index} of {self._file.path} has {whole.count(self._image_token)} tokens of "
                f"images, which max_length of {self._file.max_length} would cut: give a larger one"
            )
        labels = [IGNORED if token == self._image_token else token for token in ids]
        labels[:learnt_from] = [IGNORED] * min(learnt_from, len(labels))
        return {"text": text, "input_ids": ids, "labels": labels}

    def _ids(self, text: str, images: list[Any]) -> list[int]:
        return _encoded(self._processor, [text], [images])["input_ids"][0].tolist()

    def _texts(self, row: Mapping[str, Any], images: int, index: int) -> tuple[str | None, str]:
        """The prompt, if the row has one, and the whole text, with a mark for each image."""
        if self._source == "messages":
            return None, self._chat(row["messages"], images)
        if self._source == "text":
            return None, self._marked(row["text"], images, index)
        prompt, completion = row["prompt"], row["completion"]
        if isinstance(prompt, str) and isinstance(completion, str):
            marked = self._marked(prompt, images, index)
            end = getattr(self._processor.tokenizer, "eos_token", None) or ""
            return marked, marked + completion + end
        require_chats(prompt, completion, self._file)
        before = self._chat(prompt, images, answers_next=True)
        return before, self._chat([*prompt, *completion], images)

    def _marked(self, text: Any, images: int, index: int) -> str:
        """A text with a mark for each image. If it has no marks, they are put before the text."""
        if not isinstance(text, str):
            raise ValueError(f"row {index} of {self._file.path} has no text")
        # Gemma 3's processor looks for ``boi_token``. The other processors look for the token that
        # also fills the place of the image.
        mark: str = getattr(self._processor, "boi_token", None) or self._processor.image_token
        if mark in text:
            return text
        return mark * images + text

    def _chat(self, messages: Any, images: int, *, answers_next: bool = False) -> str:
        """The text of a chat. Images without a place are put before the user's first message."""
        if not isinstance(messages, list) or not messages:
            raise ValueError(f"messages of {self._file.path} must be lists of mappings")
        plain = [_plain_message(message) for message in messages]
        parts = [part for message in plain for part in message["content"]]
        missing = images - sum(part["type"] == "image" for part in parts)
        first = next((message for message in plain if message["role"] == "user"), plain[0])
        first["content"][:0] = [{"type": "image"}] * max(0, missing)
        return self._processor.apply_chat_template(
            plain, tokenize=False, add_generation_prompt=answers_next
        )


def _loaded_processor(name: str) -> Any:
    """A processor that pads on the right. Raises ValueError if the folder has none."""
    import transformers

    processor = transformers.AutoProcessor.from_pretrained(name, trust_remote_code=False)
    if not hasattr(processor, "image_processor"):
        raise ValueError(
            f"{name} has a tokenizer but no processor of images (preprocessor_config.json or "
            "processor_config.json)"
        )
    processor.tokenizer.padding_side = "right"
    return processor


def _encoded(processor: Any, texts: list[str], images: list[list[Any]]) -> dict[str, torch.Tensor]:
    """What the processor makes of texts and their images, token ids first."""
    # A batch without any image has no pixels.
    given = images if any(images) else None
    inputs = processor(text=texts, images=given, padding=True, return_tensors="pt")
    tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    tensors.pop("labels", None)
    return {"input_ids": tensors["input_ids"], **tensors}


def _plain_message(message: Any) -> dict[str, Any]:
    """A message as texts and places of images."""
    content = message.get("content") or ""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    image = {"type": "image"}
    # Whatever else a part names, such as a URL, is never fetched: images are a column.
    parts = [
        image if part.get("type") == "image" else {"type": "text", "text": part.get("text") or ""}
        for part in content
    ]
    return {"role": message["role"], "content": parts}
