"""Mistakes about random sounds that the text of a configuration shows before the first trial."""

import pytest

from orchestrator.planning.prechecks.mistakes import check_files
from orchestrator.planning.problems import ConfigError
from tests.support.config_files import config_of

WHISPER = "model: {task: speech-seq2seq, architecture: whisper}\n"
WAV2VEC2 = "model: {task: speech-ctc, architecture: wav2vec2}\n"
PARAKEET = "model: {task: speech-ctc, architecture: parakeet_ctc}\n"
BART = "model: {task: seq2seq-lm, architecture: bart}\n"
LLAMA = "model: {task: causal-lm, architecture: llama}\n"


@pytest.mark.parametrize(
    ("model", "data", "problem"),
    [
        (
            WHISPER,
            "sequence_length: 449",
            "sequence_length: is 449 tokens, and the model's",
        ),
        (WHISPER, "sequence_length: 9, padding: 0.5", "padding: random sounds and their transcrip"),
        (WAV2VEC2, "sequence_length: 251", "10 seconds are 499 frames, and a transcript of 251"),
        (WAV2VEC2, "sequence_length: 26, seconds: 1", "1 seconds are 49 frames"),
        (PARAKEET, "sequence_length: 9", "random sounds for parakeet_ctc are not known"),
        (LLAMA, "target_length: 3", "target_length: is for the task seq2seq-lm only"),
        (BART, "target_length: 1025", "target_length: is 1025 tokens, and bart has positions"),
        (LLAMA, "seconds: 3", "seconds: is for the tasks speech-seq2seq and speech-ctc only"),
    ],
)
def test_mistake_about_random_sounds_names_its_key(model, data, problem, tmp_path):
    with pytest.raises(ConfigError) as error:
        check_files(config_of(tmp_path, f"{model}data: {{synthetic: {{{data}}}}}\n"))
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("model", "data"), [(WHISPER, "sequence_length: 448"), (WAV2VEC2, "sequence_length: 250")]
)
def test_random_sounds_with_room_for_their_transcripts_are_taken(model, data, tmp_path):
    check_files(config_of(tmp_path, f"{model}data: {{synthetic: {{{data}}}}}\n"))


def test_file_of_sounds_needs_what_the_feature_extractor_makes(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(ConfigError) as error:
        check_files(config_of(tmp_path, f"{WHISPER}data: {{file: {{path: rows.jsonl}}}}\n"))
    assert "needs a column input_features; the file has text" in str(error.value)


@pytest.mark.parametrize(
    ("model", "row", "needed"),
    [
        (WHISPER, '{"input_features": [[0.1]]}', "speech-seq2seq needs a column labels"),
        (BART, '{"text": "a", "summary": "b"}', "seq2seq-lm needs a column target"),
    ],
)
def test_file_of_pairs_needs_its_second_column(model, row, needed, tmp_path):
    (tmp_path / "rows.jsonl").write_text(f"{row}\n")
    given = "data: {file: {path: rows.jsonl, tokenizer: .}}\n"
    with pytest.raises(ConfigError) as error:
        check_files(config_of(tmp_path, f"{model}{given}"))
    assert needed in str(error.value)
