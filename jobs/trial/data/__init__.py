"""The dataset of a trial: synthetic samples of the task's shape, or the user's own local file.

synthetic.py      random samples
image_texts.py    random images with random texts
processed.py      the user's images with texts, by the model's own processor
user_file.py      the user's file: read, its columns recognised, tokenised or refused
recognition.py    which columns of a file a task can train on
tokenizing.py     texts, chats, and prompts with their completions as token ids
trainable_rows.py leaves out rows that have no token to learn
class_labels.py   names of classes as numbers, and how many classes there are
collators.py      rows of a file as a padded batch
raw_rows.py       rows for a loop that tokenizes them itself
preferences.py    pairs of a chosen and a rejected answer
row_lengths.py    how long the rows are, and which take the most memory together
base.py           names that these files share
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.spec import DataSpec, Task
from jobs.trial.data.base import IGNORED, Collator
from jobs.trial.data.class_labels import fitted
from jobs.trial.data.collators import PadRows
from jobs.trial.data.image_texts import image_texts, image_tokens
from jobs.trial.data.preferences import pairs_of_file, random_pairs
from jobs.trial.data.raw_rows import RawRows, raw_rows_of_file, raw_rows_of_tokens
from jobs.trial.data.row_lengths import RowLengths, ragged_lengths
from jobs.trial.data.synthetic import Images, synthetic
from jobs.trial.data.user_file import read

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = [
    "IGNORED",
    "Collator",
    "Images",
    "RawRows",
    "RowLengths",
    "fitted",
    "image_tokens",
    "load",
    "load_pairs",
    "load_raw",
    "ragged_lengths",
]


def load(
    spec: DataSpec, task: Task, config: PretrainedConfig, *, samples: int | None, seed: int
) -> tuple[Any, Collator | None]:
    """The training set and its collator (None: the library's default).

    ``samples`` is how many the measurement needs so that no epoch ends within it; None: the
    dataset as it is. Raises ValueError, in one sentence, for a file that the task cannot train on.
    """
    if spec.file is not None:
        return read(spec.file, task, config)
    assert spec.synthetic is not None
    if task == "image-text-to-text":
        return image_texts(spec.synthetic, config, samples=samples, seed=seed)
    dataset = synthetic(spec.synthetic, task, config, samples=samples, seed=seed)
    if spec.synthetic.lengths is None:
        return dataset, None
    return dataset, PadRows(getattr(config, "pad_token_id", None) or 0)


def load_raw(
    spec: DataSpec, config: PretrainedConfig, *, samples: int | None, seed: int
) -> RawRows:
    """The training set of a causal language model, for a loop that prepares the rows itself.

    ``samples`` is as for ``load``. Raises ValueError, in one sentence, for an unsuitable file.
    """
    if spec.file is not None:
        return raw_rows_of_file(spec.file, config, block_tokens=spec.tokens, seed=seed)
    dataset, _ = load(spec, "causal-lm", config, samples=samples, seed=seed)
    return raw_rows_of_tokens(dataset, config, block_tokens=spec.tokens, seed=seed)


def load_pairs(
    spec: DataSpec, config: PretrainedConfig, *, samples: int | None, seed: int
) -> RawRows:
    """Pairs of a chosen and a rejected answer, for a loop that prepares them itself.

    ``samples`` is as for ``load``. Raises ValueError, in one sentence, for an unsuitable file.
    """
    if spec.file is not None:
        return pairs_of_file(spec.file, seed=seed)
    assert spec.synthetic is not None
    return random_pairs(spec.synthetic, config, samples=samples, seed=seed)
