"""What a trial trains: its model, and the data that the model sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Task = Literal[
    "sequence-classification",
    "token-classification",
    "causal-lm",
    "masked-lm",
    "seq2seq-lm",
    "image-classification",
    "image-text-to-text",
    "speech-seq2seq",
    "speech-ctc",
]
"""What a model is trained for; decides its Auto class and the columns of its data."""
Distribution = Literal["lognormal", "uniform"]
"""The distribution of the lengths of random rows. "uniform" is from one token to twice the mean."""
FileFormat = Literal["parquet", "json", "csv", "arrow", "disk", "imagefolder"]
"""How a dataset is stored; "disk" is of ``datasets.save_to_disk``, "imagefolder" has metadata."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """The model: an architecture with random weights, or a checkpoint by name or path."""

    task: Task
    architecture: str | None = None
    """A transformers ``model_type`` ("bert", "llama", "vit" ...); weights are random."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Overrides of the architecture's own configuration class."""
    name_or_path: str | None = None
    """A checkpoint for ``from_pretrained``; not together with ``architecture``."""
    trust_remote_code: bool = False
    """Whether the checkpoint may run Python code that lies beside its weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLengthDistribution:
    """How long random rows are, before they are cut to the sequence length."""

    distribution: Distribution
    mean: float
    """Mean tokens of a row."""
    sigma: float = 0.7
    """The standard deviation of the logarithm of the length; used by "lognormal" only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SyntheticData:
    """Random samples of the task's shape; ``padding`` is the share of padded positions."""

    sequence_length: int = 512
    samples: int = 512
    padding: float = 0.0
    lengths: RowLengthDistribution | None = None
    """Rows of unequal length without padding; None: every row has ``sequence_length`` positions."""
    target_length: int | None = None
    """Tokens of a sample's target, of a sequence-to-sequence model; None: as many as its input."""
    images: int = 1
    """Images of a sample of image-text-to-text, whose tokens are part of its length."""
    image_size: int | None = None
    """Side of an image in pixels; None: the one size that the model takes."""
    seconds: float | None = None
    """Sound of a sample, if the model takes any length; None: 10. Its transcript has the tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetFile:
    """The user's own local dataset, loaded through ``datasets``."""

    path: str
    format: FileFormat
    columns: Mapping[str, str] = field(default_factory=dict)
    """Our name of a column -> the file's name. Ours are ``text``, ``labels``, ``input_ids`` ..."""
    tokenizer: str | None = None
    """Name or folder of a tokenizer, or of a processor of images; rows of token ids need none."""
    max_length: int = 512
    """Longer texts are cut to this many tokens."""
    max_tokens: int | None = None
    """Rows that hold token ids already are cut to this many; None: they stay as they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSpec:
    """Exactly one of ``synthetic`` and ``file``."""

    synthetic: SyntheticData | None = None
    file: DatasetFile | None = None

    @property
    def may_be_ragged(self) -> bool:
        """Whether rows may differ in length. Those of a file may, until it is read."""
        return self.synthetic is None or self.synthetic.lengths is not None

    @property
    def tokens(self) -> int:
        """Tokens that a sample has at most; for a file of token ids the length it is cut to."""
        if self.synthetic is not None:
            return self.synthetic.sequence_length
        assert self.file is not None
        return self.file.max_tokens or self.file.max_length

    def of_length(self, tokens: int) -> DataSpec:
        """The same data with samples of this many tokens; rows of a file have at most as many."""
        if self.synthetic is not None:
            return DataSpec(synthetic=replace(self.synthetic, sequence_length=tokens))
        if self.file is None:
            return self
        return DataSpec(file=replace(self.file, max_length=tokens, max_tokens=tokens))
