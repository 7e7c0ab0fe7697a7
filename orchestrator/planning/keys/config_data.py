"""The keys of the file's sections ``model`` and ``data``, with their types and meanings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import Field, model_validator

from jobs.spec import Distribution, FileFormat, Task
from orchestrator.planning.keys.config_types import Section

_FORMAT_OF_SUFFIX: Mapping[str, FileFormat] = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".arrow": "arrow",
}


def _exactly_one(*keys: str) -> dict[str, Any]:
    return {"oneOf": [{"required": [key]} for key in keys]}


class ModelSection(Section, json_schema_extra=_exactly_one("architecture", "name_or_path")):
    """The model to train: an architecture with random weights, or a checkpoint."""

    task: Task
    """What the model is trained for. Decides its Auto class and the shape of synthetic data."""
    architecture: str | None = None
    """A transformers model type such as bert, llama or vit. Nothing is downloaded."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the architecture's configuration, such as hidden_size."""
    name_or_path: str | None = None
    """A checkpoint instead of an architecture: its name on the Hub, or its folder."""
    trust_remote_code: bool = False
    """Let the checkpoint run its own code. The command must allow it, too."""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.architecture is None) == (self.name_or_path is None):
            raise ValueError(
                'needs exactly one of "architecture" (random weights) and "name_or_path" '
                "(a checkpoint)"
            )
        return self


class LengthsSection(Section):
    """The distribution of the lengths of rows, before rows are cut to the sequence length."""

    distribution: Distribution = "lognormal"
    """lognormal: many short rows and a few long ones. uniform: one token to twice the mean."""
    mean: float = Field(ge=1)
    """Mean number of tokens in a row."""
    sigma: float = Field(default=0.7, gt=0, le=3)
    """For lognormal only: the standard deviation of the logarithm of the length."""


class SyntheticSection(Section):
    """Random samples of the task's shape."""

    sequence_length: int = Field(default=512, ge=1)
    """Tokens in a text. Images take their size from model.config."""
    samples: int = Field(default=512, ge=1)
    """Samples in an epoch."""
    padding: float = Field(default=0.0, ge=0, lt=1)
    """Share of padding among the tokens of a text."""
    lengths: LengthsSection | None = None
    """Texts of unequal length, at most sequence_length. Not together with padding."""
    target_length: int | None = Field(default=None, ge=1)
    """For seq2seq-lm: tokens of the target. Default: sequence_length, that of the input."""
    images: int = Field(default=1, ge=1)
    """For image-text-to-text: images in a sample. Their tokens are part of sequence_length."""
    image_size: int | None = Field(default=None, ge=1)
    """Side of an image in pixels. Default: the model's own size, or 224 if it takes any."""
    seconds: float | None = Field(default=None, gt=0, le=600)
    """For speech: seconds of sound, whose transcript has sequence_length tokens. Default: what the
    model takes (Whisper: 30), else 10."""

    @model_validator(mode="after")
    def _is_padded_once(self) -> Self:
        if self.lengths is not None and self.padding:
            raise ValueError(
                '"padding" and "lengths" exclude each other: rows of unequal length are padded '
                "when they are put together"
            )
        return self


class FileSection(Section):
    """Your own local dataset."""

    path: str
    """A file or folder, relative to the config."""
    format: FileFormat | None = None
    """The format of the file. Default: by its suffix. disk: a folder from datasets.save_to_disk.
    imagefolder: images in a folder for each class, or with a metadata.jsonl or metadata.csv."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Column for the model (text, text_pair, target, labels, input_ids, images ...) -> column of
    the file."""
    tokenizer: str | None = None
    """Name or folder of a tokenizer. Not needed if the file has a column input_ids. For images:
    name or folder of a processor; default: model.name_or_path."""
    max_length: int = Field(default=512, ge=1)
    """Longer texts are cut to this many tokens."""

    @property
    def known_format(self) -> FileFormat | None:
        """The format as given, else from the suffix; None if the suffix is unknown."""
        suffix = Path(self.path.lower().removesuffix(".gz")).suffix
        return self.format or _FORMAT_OF_SUFFIX.get(suffix)

    @model_validator(mode="after")
    def _has_a_format(self) -> Self:
        if self.known_format is None:
            formats = ", ".join(get_args(FileFormat))
            message = f"needs a format for {self.path}; valid choices: {formats}"
            shards = f"; name the files of a folder by a pattern, as in {self.path}/*.parquet"
            raise ValueError(message if Path(self.path).suffix else message + shards)
        return self


class DataSection(Section, json_schema_extra=_exactly_one("synthetic", "file")):
    """What to train on: synthetic samples, or a dataset of your own."""

    synthetic: SyntheticSection | None = None
    """Random samples of the task's shape."""
    file: FileSection | None = None
    """Your own local dataset."""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.synthetic is None) == (self.file is None):
            raise ValueError('needs exactly one of "synthetic" and "file"')
        return self
