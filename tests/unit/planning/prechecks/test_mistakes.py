"""Mistakes in checkpoints, tokenizers, data and lengths: found by text and files, by line."""

import json
import re
import time
from pathlib import Path

import pytest

from jobs.library_facts.__main__ import answers
from jobs.spec import ModelSpec
from orchestrator import sweep
from orchestrator.planning import library_facts
from orchestrator.planning.config import ConfigError, load_config
from orchestrator.planning.prechecks import checkpoints
from orchestrator.planning.prechecks.built_model import ModelSize, size_and_refused
from orchestrator.planning.prechecks.mistakes import ModelFacts, check_files
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration
from tests.support.commands import ROOT
from tests.support.config_files import SHIPPED, config_of
from tests.support.word_tokenizer import save_word_tokenizer

BERT = "model: {task: sequence-classification, architecture: bert}\n"
ROWS = [{"text": "good", "label": 0}, {"text": "bad", "label": 1}]
MISTAKES = (ROOT / "tests/golden/mistakes_in_data.txt").read_text().splitlines()[1:]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a data file and a tokenizer."""
    lines = [json.dumps(row) for row in ROWS]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    return tmp_path


def problems_of(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        check_files(config_of(folder, text))
    return str(caught.value)


def data(**keys: object) -> str:
    file = {"path": "train.jsonl", "tokenizer": "tokenizer", **keys}
    return f"data: {json.dumps({'file': file})}\n"


def test_data_as_it_should_be_has_no_problem(folder):
    assert check_files(config_of(folder, BERT + data())) == ()


@pytest.mark.parametrize("line", [line for line in MISTAKES if line[0] == "{"])
def test_mistake_in_the_data_is_named_with_its_key(folder, line, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    keys, _, said = line.partition(" => ")
    text = problems_of(folder, BERT + data(**json.loads(keys)))
    assert re.search(rf"sweep\.yaml:2: .*{said}", text), text


@pytest.mark.parametrize("line", [line for line in MISTAKES if line[0] == "["])
def test_mistake_in_a_row_is_named_before_the_first_trial(folder, line):
    text, _, said = line.partition(" => ")
    rows = json.loads(text)
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tokenizer = None if "input_ids" in rows[0] else "tokenizer"
    assert said in problems_of(folder, BERT + data(tokenizer=tokenizer))


@pytest.mark.parametrize("named", [{}, {"tools": "tools"}])
def test_tools_that_the_named_columns_leave_out_are_noted(folder, named):
    row = {"talk": [{"role": "user", "content": "good"}], "tools": []}
    (folder / "train.jsonl").write_text(json.dumps(row))
    (folder / "tokenizer" / "chat_template.jinja").write_text("{{ messages }}")
    gpt2 = "model: {task: causal-lm, architecture: gpt2}\n"
    config = config_of(folder, gpt2 + data(columns={"messages": "talk", **named}))
    notes = [note for note in check_files(config) if "column tools" in note]
    assert len(notes) == (not named)


def test_labels_within_the_classes_that_are_set_have_no_problem(folder):
    (folder / "train.jsonl").write_text('{"text": "a", "label": 7}\n')
    nine = "model: {task: sequence-classification, architecture: bert, config: {num_labels: 9}}\n"
    assert check_files(config_of(folder, nine + data())) == ()


@pytest.mark.parametrize("where", ["chat_template.jinja", "tokenizer_config.json"])
def test_chats_need_a_tokenizer_with_a_chat_template(folder, where):
    chat = [{"role": "user", "content": "good"}]
    (folder / "train.jsonl").write_text(json.dumps({"messages": chat}))
    text = problems_of(folder, data())
    assert "data.file.tokenizer: has no chat template, which rows of messages need" in text
    (folder / "tokenizer" / where).write_text('{"chat_template": "x"}')
    assert check_files(config_of(folder, data())) == ()


def test_rows_without_an_image_are_no_images_to_classify(folder):
    vit = "model: {task: image-classification, architecture: vit}\n"
    (folder / "train.jsonl").write_text('{"photo": "cat.png", "label": 0}\n')
    text = problems_of(folder, vit + data())
    assert "needs a column images; the file has photo, label" in text
    image = '{"image": "cat.png", "label": 0}\n'
    (folder / "train.jsonl").write_text(image)
    assert check_files(config_of(folder, vit + data())) == ()
    (folder / "train.jsonl").write_text(image + '{"image": null, "label": 1}\n')
    assert "row 2 has no image; remove the rows without one" in problems_of(folder, vit + data())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("./nowhere", "there is no folder"),
        ("./empty", "it is not a checkpoint that transformers saved"),
        ("./runs", 'did you mean ".*checkpoint-500"'),
        ("./adapter", "holds an adapter"),
        ("./train.jsonl", "is a file; give the folder"),
        ("./noweights", "has no weights"),
        ("a/b/c", "a name on the Hub looks like ORGANIZATION/MODEL"),
    ],
)
def test_mistake_in_a_checkpoint_is_named(folder, name, said):
    for made in ("empty", "adapter", "noweights", "runs/checkpoint-500"):
        (folder / made).mkdir(parents=True)
    (folder / "adapter" / "adapter_config.json").write_text("{}")
    for made in ("noweights", "runs/checkpoint-500"):
        (folder / made / "config.json").write_text('{"model_type": "bert"}')
    text = f"model: {{task: sequence-classification, name_or_path: {name}}}\n"
    assert re.search(said, problems_of(folder, text))


def test_unknown_key_over_a_checkpoint_is_named(folder):
    checkpoint = folder / "mine"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text('{"model_type": "bert", "mine_alone": 1}')
    (checkpoint / "model.safetensors").touch()
    model = "task: sequence-classification, name_or_path: ./mine"
    text = problems_of(folder, f"model: {{{model}, config: {{hiden_size: 3}}}}\n")
    assert "model.config.hiden_size" in text
    kept = f"model: {{{model}, config: {{mine_alone: 3, num_labels: 4}}}}\n"
    assert check_files(config_of(folder, kept)) == ()


def test_missing_files_are_notes_where_trials_run_elsewhere(folder):
    config = config_of(folder, BERT + data(path="on_the_nodes.jsonl"))
    (note,) = check_files(config, runs_elsewhere=True)
    assert "there is no file" in note


@pytest.mark.parametrize(
    ("model_type", "given", "usable", "trained"),
    [
        ("bert", {}, 512, None),
        ("gpt2", {"n_positions": 64}, 64, None),
        ("roberta", {"max_position_embeddings": 514}, 512, None),
        ("t5", {}, None, None),
        ("llama", {}, None, 2048),
        ("nothing", {}, None, None),
    ],
)
def test_positions_are_a_bound_only_where_there_is_a_table(model_type, given, usable, trained):
    model = ModelSpec(task="causal-lm", architecture=model_type, config=given)
    configuration = ModelConfiguration.of(model)
    assert configuration.usable_positions() == usable
    assert configuration.trained_positions() == trained


def test_rotary_model_beyond_its_positions_is_a_note(tmp_path):
    (note,) = check_files(config_of(tmp_path, "data: {synthetic: {sequence_length: 4096}}"))
    assert "llama was made for 2048" in note


@pytest.mark.parametrize(
    ("given", "key", "said"),
    [
        ("{}", "", "has 15 token ids, and the model has a vocabulary of 12: take the model's own"),
        ("{vocab_size: 40}", "", "vocab_size is 40, and the checkpoint has weights for 12; remove"),
        ("{n_positions: 70}", "", "max_position_embeddings is 70, and the checkpoint has weights"),
        ("{}", "max_length", "has positions for 24; give at most 24"),
    ],
)
def test_sizes_that_weights_fix_have_remedies_that_work(folder, given, key, said):
    weights = folder / "gpt"
    weights.mkdir()
    sizes = {"model_type": "gpt2", "vocab_size": 12, "n_positions": 24}
    (weights / "config.json").write_text(json.dumps(sizes))
    (weights / "model.safetensors").touch()
    (folder / "train.jsonl").write_text('{"text": "good no"}\n')
    save_word_tokenizer(folder / "tokenizer")
    model = f"model: {{task: causal-lm, name_or_path: ./gpt, config: {given}}}\n"
    text = problems_of(folder, model + data(max_length=30 if key else 8))
    assert said in text
    assert "larger model.config" not in text
    built = "model: {task: causal-lm, architecture: gpt2, config: {vocab_size: 12}}\n"
    larger = "or set a larger model.config.vocab_size"
    assert larger in problems_of(folder, built + data(max_length=8))
    (folder / "train.jsonl").write_text('{"text": "good film"}\n')
    (note,) = check_files(config_of(folder, built + data(max_length=8)))
    assert larger in note


def test_hub_that_cannot_be_reached_is_a_sentence_in_seconds(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "cannot be reached" in checkpoints.unreachable("some/model")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_configuration_has_its_size_without_a_count(path, monkeypatch):
    monkeypatch.setattr(library_facts, "_asked", lambda questions: [{"reason": "asked"}])
    assert size_and_refused(load_config(path).model, {}, print)[0].parameters


@pytest.mark.slow
def test_model_size_is_counted_once_and_remembered(folder):
    # A vocabulary that was never counted, whenever this test is run.
    vocabulary = time.time_ns() % 10**9
    model = config_of(
        folder,
        "model: {task: sequence-classification, architecture: bert, config: {"
        f"vocab_size: {vocabulary}, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2, "
        "intermediate_size: 16, max_position_embeddings: 4}}",
    ).model
    said: list[str] = []
    first, _ = size_and_refused(model, {}, said.append)
    # Embeddings (vocabulary+4+2)·8+16, a layer 4·72+16+2·(8·16)+24+16, pooler 72, classifier 18.
    assert first == ModelSize(parameters=8 * vocabulary + 64 + 288 + 16 + 256 + 24 + 16 + 72 + 18)
    assert size_and_refused(model, {}, said.append) == (first, ())
    assert len(said) == 1


def test_model_that_cannot_be_built_is_a_mistake(folder, capsys, monkeypatch):
    # Here, because its process imports the libraries for seconds; the test above has one.
    monkeypatch.setattr(library_facts, "_asked", answers)
    config_of(
        folder,
        "model: {task: sequence-classification, architecture: bert, config: {hidden_act: gelluu}}",
    )
    assert sweep.main([str(folder / "sweep.yaml"), "--dry-run"]) == 2
    assert "there is no 'gelluu'" in capsys.readouterr().err


def test_model_facts_show_why_nothing_was_counted():
    facts = ModelFacts(size=ModelSize(reason="no answer"))
    assert list(facts.lines()) == [("model", "parameters not counted: no answer")]
    assert facts.to_json() == {"parameters": None}


def test_missing_folder_of_a_model_is_named_in_the_dry_run(folder, monkeypatch):
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
    (folder / "models" / "llama").mkdir(parents=True)
    model = "model: {task: causal-lm, name_or_path: models/lama}\n"
    assert f'no folder {folder}/models/lama; did you mean "llama"' in problems_of(
        folder, model + data()
    )
    config = config_of(folder, BERT + data(tokenizer="tokenizr"))
    (note,) = check_files(config)
    assert 'a name on the Hub; did you mean "tokenizer"?' in note
    assert check_files(config_of(folder, BERT + data(tokenizer="google/tokenizr"))) == ()
