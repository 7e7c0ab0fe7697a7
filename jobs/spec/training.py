"""What a trial trains: model and data, the choices that change what it learns, the user's code."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Literal

Task = Literal[
    "sequence-classification",
    "token-classification",
    "causal-lm",
    "masked-lm",
    "seq2seq-lm",
    "image-classification",
    "image-text-to-text",
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
    images: int = 1
    """Images of a sample of image-text-to-text, whose tokens are part of its length."""
    image_size: int | None = None
    """Side of an image in pixels; None: the one size that the model takes."""


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


Choice = str | int | float | bool | None
"""The value chosen on one axis."""


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """The choices that change what a training learns: optimizer, adapter, learning rate ..."""

    choices: frozenset[tuple[str, Choice]] = frozenset()

    @classmethod
    def of(cls, choices: Mapping[str, Choice]) -> TrainingRecipe:
        """The recipe with these choices: axis -> value."""
        return cls(frozenset(choices.items()))

    @property
    def by_axis(self) -> dict[str, Choice]:
        """Axis -> value, axes in alphabetical order."""
        return dict(sorted(self.choices, key=itemgetter(0)))


PLAIN = TrainingRecipe()
"""The recipe without any choice: the training as the user wrote it."""

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class UserCode:
    """Objects of the user's own modules, each as ``module:object``; empty: the library's own."""

    trainer: str = ""
    """A subclass of ``transformers.Trainer``."""
    callbacks: tuple[str, ...] = ()
    """Subclasses of ``transformers.TrainerCallback``, or objects of one."""
    collator: str = ""
    """A function from rows to a batch, or a class whose objects can be called like that."""
    entry: str = ""
    """A function that makes the Trainer from the parts that it takes by name."""
    folder: str = ""
    """Modules are looked for here first, and then in the environment."""
    digest: str = ""
    """Digest of the sources of these modules, and of the modules beside them that they import."""

    def __post_init__(self) -> None:
        for text in (*self.names, self.folder, self.digest):
            if not isinstance(text, str):
                raise TypeError(f"{text!r} is not a text")  # a record may have been edited by hand

    @property
    def names(self) -> tuple[str, ...]:
        """Every object, as ``module:object``."""
        return tuple(filter(None, (self.trainer, *self.callbacks, self.collator, self.entry)))


def is_object_name(text: object) -> bool:
    """Whether a text is ``module:object``, both made of plain Python names."""
    # The name of a file may have 255 bytes.
    if not isinstance(text, str) or len(text) > 200 or not _NAME.fullmatch(text):
        return False
    return not any(map(keyword.iskeyword, re.split(r"[.:]", text)))
