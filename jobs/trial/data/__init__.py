"""The dataset of a trial: synthetic samples of the task's shape, or the user's own local file.

synthetic.py      random samples
user_file.py      the user's file: read, its columns recognised, tokenised or refused
recognition.py    which columns of a file a task can train on
tokenizing.py     texts, chats, and prompts with their completions as token ids
class_labels.py   names of classes as numbers, and how many classes there are
decoded_images.py images as pixel values, made when a row is read
collators.py      rows of a file as a padded batch
row_lengths.py    how long the rows are, and which take the most memory together
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.spec import DataSpec, Task
from jobs.tasks import SAMPLES
from jobs.techniques.hooks import service
from jobs.trial.data.class_labels import fitted
from jobs.trial.data.collators import IGNORED, Collator, PadRows
from jobs.trial.data.row_lengths import RowLengths, ragged_lengths
from jobs.trial.data.synthetic import synthetic
from jobs.trial.data.user_file import read

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = ["IGNORED", "Collator", "RowLengths", "fitted", "load", "ragged_lengths"]


def load(
    spec: DataSpec, task: Task, config: PretrainedConfig, *, samples: int | None, seed: int
) -> tuple[Any, Collator | None]:
    """The training set and its collator (None: the library's default). ``samples`` is how many the
    measurement needs so that no epoch ends within it; None: the dataset as it is. Raises
    ValueError, in one sentence, for a file that the task cannot train on."""
    if task in SAMPLES:
        dataset, collator = service(SAMPLES[task])(spec, config, samples=samples, seed=seed)
        return dataset, collator
    if spec.file is not None:
        return read(spec.file, task, config)
    assert spec.synthetic is not None
    dataset = synthetic(spec.synthetic, task, config, samples=samples, seed=seed)
    if spec.synthetic.lengths is None:
        return dataset, None
    return dataset, PadRows(getattr(config, "pad_token_id", None) or 0)
