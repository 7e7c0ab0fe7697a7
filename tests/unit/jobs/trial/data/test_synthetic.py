"""Synthetic data sets: shapes, labels and padding of each task."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import transformers

from jobs.spec import DataSpec, RowLengthDistribution, SyntheticData, Task
from jobs.trial.data import IGNORED, load

CONFIG: Any = SimpleNamespace(
    vocab_size=1000, num_labels=2, pad_token_id=0, image_size=8, num_channels=3, problem_type=None
)


def columns(task: Task, *, padding: float = 0.0, samples: int | None = 64) -> dict[str, np.ndarray]:
    spec = DataSpec(synthetic=SyntheticData(sequence_length=32, samples=50, padding=padding))
    dataset, collator = load(spec, task, CONFIG, samples=samples, seed=1)
    assert collator is None
    return {name: np.array(dataset[name]) for name in dataset.column_names}


@pytest.mark.parametrize(("needed", "count"), [(64, 64), (10, 50), (None, 50)])
def test_load_makes_as_many_samples_as_are_needed(needed, count):
    data = columns("causal-lm", samples=needed)
    assert data["input_ids"].shape == (count, 32)


def test_load_is_the_same_for_the_same_seed_and_has_a_label_per_sample():
    first, second = columns("sequence-classification"), columns("sequence-classification")
    assert np.array_equal(first["input_ids"], second["input_ids"])
    assert (first["labels"].shape, set(first["labels"])) == ((64,), {0, 1})


def test_load_with_padding_ignores_padded_positions():
    data = columns("causal-lm", padding=0.5)
    is_padding = data["attention_mask"] == 0
    assert 0.4 < is_padding.mean() < 0.6
    assert (data["input_ids"][is_padding] == CONFIG.pad_token_id).all()
    assert (data["labels"][is_padding] == IGNORED).all()
    assert np.array_equal(data["labels"][~is_padding], data["input_ids"][~is_padding])


def test_load_for_masked_language_models_predicts_some_tokens():
    data = columns("masked-lm")
    is_predicted = data["labels"] != IGNORED
    assert 0.1 < is_predicted.mean() < 0.2
    assert np.array_equal(data["labels"][is_predicted], data["input_ids"][is_predicted])


@pytest.mark.parametrize("lengths", [None, RowLengthDistribution(distribution="uniform", mean=16)])
def test_load_makes_targets_of_their_own_length(lengths):
    spec = SyntheticData(sequence_length=32, samples=50, target_length=8, lengths=lengths)
    rows, _ = load(DataSpec(synthetic=spec), "seq2seq-lm", CONFIG, samples=None, seed=1)
    inputs, targets = ([len(row) for row in rows[name]] for name in ("input_ids", "labels"))
    assert 24 < max(inputs) <= 32
    assert max(targets) == 8
    assert (len(set(targets)) > 1) is (lengths is not None)
    if lengths is not None:
        assert np.mean(targets) == pytest.approx(np.mean(inputs) / 4, rel=0.2)


@pytest.mark.parametrize(
    ("task", "architecture", "name", "shape"),
    [
        ("speech-seq2seq", "whisper", "input_features", (80, 3000)),
        ("speech-seq2seq", "speech_to_text", "input_features", (400, 80)),
        ("speech-seq2seq", "moonshine", "input_values", (64_000,)),
        ("speech-ctc", "wav2vec2", "input_values", (64_000,)),
        ("speech-ctc", "wav2vec2-bert", "input_features", (200, 160)),
    ],
)
def test_load_makes_sounds_as_the_model_takes_them(task, architecture, name, shape):
    config = transformers.AutoConfig.for_model(architecture)
    config.vocab_size = config.vocab_size or 32
    spec = DataSpec(synthetic=SyntheticData(samples=2, seconds=4.0, sequence_length=20))
    sounds, _ = load(spec, task, config, samples=None, seed=1)
    assert sounds[0][name].shape == shape
    assert sounds[0]["labels"].shape == (20,)
    assert int(sounds[0]["labels"].min()) > 0  # of CTC, 0 says that a frame has no letter


def test_load_refuses_transcripts_longer_than_their_sounds():
    config = transformers.AutoConfig.for_model("wav2vec2")
    for tokens, is_refused in ((25, False), (26, True)):
        spec = DataSpec(synthetic=SyntheticData(samples=1, seconds=1.0, sequence_length=tokens))
        with pytest.raises(ValueError, match="49 frames") if is_refused else nullcontext():
            load(spec, "speech-ctc", config, samples=None, seed=1)


def test_load_for_images_repeats_a_small_pool():
    spec = DataSpec(synthetic=SyntheticData(samples=100))
    images, _ = load(spec, "image-classification", CONFIG, samples=None, seed=1)
    assert len(images) == 100
    assert images[0]["pixel_values"].shape == (3, 8, 8)
    assert (images[0]["pixel_values"] == images[64]["pixel_values"]).all()


@pytest.mark.parametrize(
    ("problem", "outputs", "shape"),
    [(None, 1, (64,)), ("regression", 3, (64, 3)), ("multi_label_classification", 3, (64, 3))],
)
def test_load_for_a_regression_has_fractions(monkeypatch, problem, outputs, shape):
    monkeypatch.setattr(CONFIG, "problem_type", problem)
    monkeypatch.setattr(CONFIG, "num_labels", outputs)
    labels = columns("sequence-classification")["labels"]
    assert labels.shape == shape
    assert labels.dtype == np.float32


def test_load_with_lengths_has_rows_of_that_mean():
    lengths = RowLengthDistribution(distribution="lognormal", mean=12, sigma=0.5)
    synthetic = SyntheticData(sequence_length=64, samples=2000, lengths=lengths)
    dataset, collate = load(
        DataSpec(synthetic=synthetic), "causal-lm", CONFIG, samples=5000, seed=1
    )
    tokens = np.array([len(row) for row in dataset["input_ids"]])
    # As many rows as the data have, however many steps are measured.
    assert len(tokens) == 2000
    assert abs(tokens.mean() - 12) < 0.5
    assert 1 <= tokens.min() < tokens.max() <= 64
    batch = collate([dataset[0], dataset[1]])
    assert batch["attention_mask"].sum() == tokens[:2].sum()
