"""Exported files train as the trial did: without this project's code, their losses are equal."""

import dataclasses
import json
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
import transformers

from jobs.spec import (
    DatasetFile,
    DataSpec,
    ModelSpec,
    RowLengthDistribution,
    SyntheticData,
    Task,
    TrialSpec,
)
from jobs.trial import data, models
from orchestrator.export.writing import export
from tests.conftest import TINY_BERT
from tests.integration.conftest import assert_export_trains_as
from tests.support.fresh_processes import (
    AS_MEASURED,
    figures_of,
    in_a_process,
    measured_record,
    train,
)
from tests.support.vision_models import tiny_images, tiny_vision_model
from tests.support.word_tokenizer import CHAT_TEMPLATE, save_word_tokenizer


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is exported builds its model on the CPU, as these trials do."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


CASES: Mapping[str, dict[str, Any]] = {
    "plain": {"activations": "checkpoint", "precision": "bf16"},
    "lora_and_a_hook": {"adapter": "lora_r8", "optimizer": "adam8bit_decay_groups"},
    "accelerate_loop": {
        "loop": "accelerate",
        "optimizer": "adafactor",
        "accumulation": 2,
        "activations": "checkpoint",
    },
}
"""Further techniques are trained by tests/gpu/test_export.py."""


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_exported_files_train_with_the_trials_losses(case, processes, tiny_spec, tmp_path):
    spec = tiny_spec(CASES[case])
    losses = measured_record(processes, spec, tmp_path).steps["loss"]
    assert len(set(losses)) > 1
    assert_export_trains_as(processes, spec, losses, tmp_path, rel=1e-3)


@pytest.mark.slow
def test_exported_plain_loop_weights_micro_batches_by_their_labels(processes, tiny_spec, tmp_path):
    spec = dataclasses.replace(
        tiny_spec({"loop": "accelerate", "micro_batch": 1, "accumulation": 2}),
        model=MODELS["causal-lm"],
        data=DataSpec(synthetic=SyntheticData(sequence_length=16, samples=8, padding=0.6)),
    )
    losses = measured_record(processes, spec, tmp_path).steps["loss"]
    assert_export_trains_as(processes, spec, losses, tmp_path, rel=1e-5)


@pytest.mark.slow
def test_exported_images_with_texts_train_with_the_trials_losses(processes, tiny_spec, tmp_path):
    spec = dataclasses.replace(
        tiny_spec({"vision": "frozen", "loss": "chunked"}),
        model=tiny_vision_model("qwen2_5_vl"),
        data=DataSpec(synthetic=tiny_images("qwen2_5_vl", padding=0.1)),
    )
    losses = measured_record(processes, spec, tmp_path).steps["loss"]
    assert_export_trains_as(processes, spec, losses, tmp_path, rel=1e-5)


NO_DROPOUT = {
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "llama": {},
}
DIVIDES = {"bert": "the Trainer divides", "llama": "the model divides"}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", NO_DROPOUT)
def test_exported_accumulation_has_the_losses_of_one_whole_batch(
    architecture, processes, tiny_spec, tmp_path
):
    # BERT's classifier ignores num_items_in_batch, Llama divides by it.
    task = "sequence-classification" if architecture == "bert" else "causal-lm"
    config = {**MODELS[task].config, **NO_DROPOUT[architecture]}
    model = ModelSpec(task=MODELS[task].task, architecture=architecture, config=config)
    losses = {}
    for accumulation in (1, 4):
        choices = {"micro_batch": 8 // accumulation, "accumulation": accumulation}
        spec = dataclasses.replace(tiny_spec(choices), model=model)
        exported = tmp_path / str(accumulation)
        export(spec, exported, label="a test")
        options = ["--max_steps", "5", *AS_MEASURED, "--learning_rate", "1e-2"]
        losses[accumulation] = figures_of(processes, options, exported)["train_loss"]
    assert losses[4] == pytest.approx(losses[1], rel=1e-4)
    log = (tmp_path / "4" / "log.txt").read_text()
    assert f"accumulation checked: {DIVIDES[architecture]} the loss by 4" in log


@pytest.mark.slow
def test_exported_accumulation_that_would_be_wrong_stops_with_a_sentence(
    processes, tiny_spec, tmp_path
):
    export(tiny_spec({"micro_batch": 2, "accumulation": 4}), tmp_path / "train", label="a test")
    path = tmp_path / "train" / "train.py"
    # A model that divides by something else, and a Trainer that does not divide.
    broken = path.read_text().replace(
        "    return model.to(device)",
        "    import functools\n"
        "    plain = model.forward\n"
        "    @functools.wraps(plain)\n"
        "    def forward(*args, num_items_in_batch=None, **kwargs):\n"
        "        outputs = plain(*args, **kwargs)\n"
        "        outputs.loss = outputs.loss / (num_items_in_batch or 1) ** 0.5\n"
        "        return outputs\n"
        "    model.forward = forward\n"
        "    return model.to(device)",
    )
    path.write_text(broken)
    with pytest.raises(AssertionError, match="accumulated correctly"):
        figures_of(processes, ["--max_steps", "2", *AS_MEASURED], path.parent)


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["trainer", "accelerate"])
def test_exported_training_evaluates_saves_and_goes_on(loop, processes, tiny_spec, tmp_path):
    import torch

    exported = tmp_path / "train"
    spec = tiny_spec({"loop": loop, "micro_batch": 2, "accumulation": 2})
    export(spec, exported, label="a test")
    in_a_process(processes, train, ["--synthetic", "--max_steps", "4"], (), exported)
    printed = (exported / "printed.txt").read_text()
    assert printed.count("eval_loss") == 4
    saved = sorted(path.name for path in (exported / "output").iterdir() if path.is_dir())
    assert saved == ["checkpoint-3", "checkpoint-4"]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(exported / "output")
    whole = model.state_dict()

    # Nothing overwrites it, and a training that goes on from step 3 ends in the same weights.
    with pytest.raises(AssertionError, match="holds an earlier training"):
        in_a_process(processes, train, ["--synthetic", "--max_steps", "4"], (), exported)
    checkpoint = str(exported / "output" / "checkpoint-3")
    options = ["--synthetic", "--max_steps", "4", "--resume_from_checkpoint", checkpoint]
    in_a_process(processes, train, [*options, "--output_dir", str(tmp_path / "on")], (), exported)
    resumed = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "on")
    for name, weights in resumed.state_dict().items():
        assert torch.allclose(weights, whole[name], atol=1e-6), name


TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
TEXT = {**TINY, "vocab_size": 128}
CONFIGS: Mapping[Task, tuple[str, dict[str, Any]]] = {
    "sequence-classification": ("bert", TEXT),
    "token-classification": ("bert", TEXT),
    "causal-lm": ("llama", TEXT),
    "masked-lm": ("bert", TEXT),
    "seq2seq-lm": ("t5", {"d_model": 32, "num_layers": 1, "vocab_size": 128}),
    "image-classification": ("vit", {**TINY, "image_size": 32, "patch_size": 16}),
    "speech-seq2seq": ("whisper", {"max_source_positions": 20, "num_mel_bins": 8}),
    "speech-ctc": ("hubert", TINY),
}
MODELS = {
    task: ModelSpec(task=task, architecture=architecture, config=config)
    for task, (architecture, config) in CONFIGS.items()
}


def _script(spec: TrialSpec, folder: Path) -> dict[str, Any]:
    """The functions of an exported train.py."""
    export(spec, folder, label="a test")
    sys.modules.pop("measured_data", None)  # of another export
    with patch.object(sys, "path", [str(folder), *sys.path]):
        return runpy.run_path(str(folder / "train.py"), run_name="exported")


def test_exported_script_names_an_option_that_it_does_not_have(
    tiny_spec, tmp_path, monkeypatch, capsys
):
    make_arguments = _script(tiny_spec(), tmp_path / "train")["make_arguments"]
    for option, meant in (("max_stepz", "max_steps"), ("eval_shere", "eval_share")):
        monkeypatch.setattr(sys, "argv", ["train.py", f"--{option}", "3"])
        with pytest.raises(SystemExit):
            make_arguments()
        said = capsys.readouterr().err
        assert f"error: no option --{option}; did you mean --{meant}?" in said
        assert said.count("\n") == 2


@pytest.mark.parametrize(
    ("loop", "last"), [("trainer", "trainer_state.json"), ("accelerate", "epoch_state.pt")]
)
def test_exported_training_goes_on_from_the_last_whole_checkpoint(
    loop, last, tiny_spec, tmp_path, capsys
):
    resume = _script(tiny_spec({"loop": loop}), tmp_path / "train")["checkpoint_to_resume"]
    asked = SimpleNamespace(output_dir=str(tmp_path / "out"), resume_from_checkpoint="true")
    with pytest.raises(SystemExit, match="no whole checkpoint"):
        resume(asked)
    for step, text in ((7, "{}"), (80, "{}"), (112, ""), (120, None)):
        checkpoint = tmp_path / "out" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "model.safetensors").touch()
        if text is not None:
            (checkpoint / last).write_text(text)
    assert resume(asked) == str(tmp_path / "out" / "checkpoint-80")
    assert "checkpoint-120 is incomplete; going on from" in capsys.readouterr().err


def _values(dataset: Any) -> list[dict[str, Any]]:
    samples = [dataset[index] for index in range(len(dataset))]
    return [{name: _plain(value) for name, value in sample.items()} for sample in samples]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


OPTIONS = SimpleNamespace(synthetic=True, eval_share=0.05)
ARGUMENTS = SimpleNamespace(max_steps=4, train_batch_size=4, gradient_accumulation_steps=2, seed=42)


EVEN = SyntheticData(sequence_length=16, samples=8)
LENGTHS = RowLengthDistribution(distribution="lognormal", mean=8)
RAGGED = SyntheticData(sequence_length=16, samples=24, lengths=LENGTHS)


@pytest.mark.parametrize(
    ("task", "synthetic"),
    [
        *((task, EVEN) for task in MODELS),
        *((task, dataclasses.replace(EVEN, padding=0.3)) for task in MODELS),
        ("causal-lm", RAGGED),
        ("seq2seq-lm", dataclasses.replace(RAGGED, target_length=8)),
        ("sequence-classification", RAGGED),
    ],
)
def test_exported_synthetic_data_is_the_trials(task, synthetic, tiny_spec, tmp_path):
    spec = dataclasses.replace(tiny_spec(), model=MODELS[task], data=DataSpec(synthetic=synthetic))
    script = _script(spec, tmp_path)
    config = script["model_config"](OPTIONS)
    assert config.to_dict() == models.architecture_config(spec.model).to_dict()
    exported, collate = script["make_dataset"](config, ARGUMENTS, OPTIONS)
    trials, own_collate = data.load(spec.data, spec.model.task, config, samples=32, seed=42)
    assert len(exported) == (24 if synthetic.lengths else 32)
    assert _values(exported) == _values(trials)
    assert (own_collate is not None) is (synthetic.lengths is not None)
    if own_collate is not None:
        rows = [trials[index] for index in range(4)]
        own_batch = {name: values.tolist() for name, values in own_collate(rows).items()}
        assert {name: values.tolist() for name, values in collate(rows).items()} == own_batch


@pytest.mark.slow
@pytest.mark.parametrize("batching", ["padding_free", "packed"])
def test_exported_files_train_with_the_trials_batches(batching, processes, tiny_spec, tmp_path):
    # A whole epoch has the exported script's order of rows of unequal length.
    tiny = tiny_spec({"batching": batching}, steps=None)
    model = ModelSpec(task="causal-lm", architecture="llama", config=TEXT)
    spec = dataclasses.replace(tiny, model=model, data=DataSpec(synthetic=RAGGED))
    losses = measured_record(processes, spec, tmp_path).steps["loss"]
    assert_export_trains_as(processes, spec, losses, tmp_path, rel=1e-3)


def test_exported_checkpoint_and_dataset_are_the_trials(tiny_spec, tmp_path):
    import torch

    checkpoint = tmp_path / "checkpoint"
    config = transformers.BertConfig(**TINY_BERT)
    transformers.BertForSequenceClassification(config).save_pretrained(checkpoint)
    rows = [{"tokens": [(7 * n + k) % 128 for k in range(16)], "labels": n % 2} for n in range(16)]
    (tmp_path / "rows.json").write_text("\n".join(json.dumps(row) for row in rows))
    file = DatasetFile(
        path=str(tmp_path / "rows.json"),
        format="json",
        columns={"input_ids": "tokens", "labels": "labels"},
    )
    model = ModelSpec(task="sequence-classification", name_or_path=str(checkpoint))
    spec = dataclasses.replace(tiny_spec(), model=model, data=DataSpec(file=file))
    script = _script(spec, tmp_path / "exported")
    device = torch.device("cpu")
    exported_config = script["model_config"](OPTIONS)
    exported = script["make_model"](exported_config, device, OPTIONS).state_dict()
    trials = models.build(spec.model, spec.settings.model_kwargs, device).state_dict()
    assert exported.keys() == trials.keys()
    assert all(torch.equal(exported[name], trials[name]) for name in exported)
    dataset, _ = script["make_dataset"](exported_config, ARGUMENTS, OPTIONS)
    expected, _ = data.load(spec.data, spec.model.task, exported_config, samples=None, seed=42)
    assert _values(dataset) == _values(expected)


CHAT = [{"role": "user", "content": "good film"}, {"role": "assistant", "content": "a fine one"}]
ROWS: Mapping[str, tuple[str, list[dict[str, Any]]]] = {
    "chats": ("causal-lm", [{"messages": CHAT}]),
    "prompts": ("causal-lm", [{"prompt": "good", "completion": "film"}]),
    "pairs": ("seq2seq-lm", [{"text": "good film", "target": "fine"}]),
    "names of classes": (
        "sequence-classification",
        [{"text": "good film", "label": "yes"}, {"text": "a film", "label": "no"}],
    ),
    "words": ("token-classification", [{"text": ["good", "film"], "labels": ["A", "B"]}]),
}
"""Task and rows of a user's file, as people have them."""


@pytest.mark.parametrize("kind", ROWS)
def test_exported_reading_of_a_file_is_the_trials(kind, tiny_spec, tmp_path):
    task, rows = ROWS[kind]
    (tmp_path / "rows.json").write_text("\n".join(json.dumps(row) for row in rows * 4))
    file = DatasetFile(
        path=str(tmp_path / "rows.json"),
        format="json",
        tokenizer=save_word_tokenizer(tmp_path / "tokenizer", chat_template=CHAT_TEMPLATE),
        max_length=16,
    )
    architecture = {"causal-lm": "llama", "seq2seq-lm": "t5"}.get(task, "bert")
    config = {"vocab_size": 64} if architecture == "t5" else {**TEXT, "num_labels": 3}
    model = ModelSpec(task=cast(Task, task), architecture=architecture, config=config)
    spec = dataclasses.replace(tiny_spec(), model=model, data=DataSpec(file=file))
    script = _script(spec, tmp_path / "exported")
    exported_config = script["model_config"](OPTIONS)
    dataset, collator = script["make_dataset"](exported_config, ARGUMENTS, OPTIONS)
    trials, trials_collator = data.load(
        spec.data, spec.model.task, exported_config, samples=None, seed=42
    )
    assert dataset.features == trials.features
    assert _values(dataset) == _values(trials)
    assert type(collator) is type(trials_collator)
    script["fit_classes"](exported_config, dataset)
    fitted = data.fitted(model, trials, config_labels=models.architecture_config(model).num_labels)
    assert exported_config.num_labels == models.architecture_config(fitted).num_labels


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing:FutureWarning")
def test_exported_settings_load_with_the_libraries_own_loaders(tiny_spec, tmp_path):
    from accelerate.commands.config.config_args import load_config_from_file

    choices = {
        "precision": "bf16",
        "activations": "checkpoint",
        "accumulation": 4,
        "optimizer": "adafactor",
    }
    export(tiny_spec(choices), tmp_path, label="a test", epochs=3)
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    (from_yaml,) = parser.parse_yaml_file(str(tmp_path / "training_arguments.yaml"))
    (from_json,) = parser.parse_json_file(str(tmp_path / "training_arguments.json"))
    assert from_yaml.to_dict() == from_json.to_dict()
    assert (from_yaml.gradient_accumulation_steps, from_yaml.num_train_epochs) == (4, 3)
    assert (from_yaml.optim, from_yaml.bf16) == ("adafactor", True)
    assert load_config_from_file(str(tmp_path / "accelerate.yaml")).mixed_precision == "bf16"
