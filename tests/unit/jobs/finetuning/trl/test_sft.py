"""Whole trials with TRL's SFTTrainer on the CPU, beside the Trainer's on the same rows."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import UnsupportedError
from jobs.finetuning.trl.parameters import plain_defaults
from jobs.finetuning.trl.raw_rows import RawRows
from jobs.finetuning.trl.sft_rows import prepared, raw_rows
from jobs.flags import Flag, FlagKind, flags_of
from jobs.record import TrialRecord
from jobs.spec import Choice, DataSpec, SyntheticData, TrialSpec
from jobs.techniques import AXES
from jobs.trial.models import architecture_config
from tests.conftest import build_tiny_spec
from tests.support.json_rows import file_of
from tests.support.one_trial import measured
from tests.support.tiny_decoders import MODEL, PADDED, RAGGED
from tests.support.word_tokenizer import CHAT_TEMPLATE, save_word_tokenizer

with warnings.catch_warnings():
    # What TRL and the libraries that it imports warn about, while they are imported.
    warnings.simplefilter("ignore")
    import trl

LORA = {"adapter": "lora_r8", "activations": "checkpoint", "precision": "bf16"}
CASES: dict[str, tuple[SyntheticData, dict[str, Choice]]] = {
    "ragged": (RAGGED, {"accumulation": 2}),
    "padded": (PADDED, {}),
    "lora": (PADDED, LORA),
    "padding_free": (RAGGED, {"batching": "padding_free"}),
    "packed": (RAGGED, {"batching": "packed"}),
}
"""Name -> the rows, and the choices besides the loop."""
Records = dict[tuple[str, str], TrialRecord]


def _spec(case: str, loop: str) -> TrialSpec:
    rows, choices = CASES[case]
    measured = {"evaluate_and_save": case == "ragged", "steps": 3}
    spec = build_tiny_spec({"loop": loop, "micro_batch": 4, **choices}, **measured)
    return replace(spec, model=MODEL, data=DataSpec(synthetic=rows))


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """One trial of each case with each loop: (case, loop) -> its record."""
    folder = tmp_path_factory.mktemp("scratch")
    records = {}
    for case in CASES:
        for loop in ("trainer", "trl_sft"):
            records[case, loop] = measured(_spec(case, loop), folder)
    return records


@pytest.mark.parametrize(
    ("case", "share"), [("ragged", 1e-5), ("padded", 1e-5), ("padding_free", 1e-5), ("lora", 2e-3)]
)
def test_sft_has_the_losses_of_the_trainer(case, share, records):
    losses = records[case, "trainer"].steps["loss"]
    assert records[case, "trl_sft"].steps["loss"] == pytest.approx(losses, rel=share)


@pytest.mark.parametrize(
    ("case", "tokens", "real"),
    [
        ("padded", 32, 22.667),
        ("lora", 32, 22.667),
        ("ragged", 16.786, 10.982),
        ("padding_free", 11.1, 11.1),
    ],
)
def test_sft_counts_rows_and_tokens_of_the_trainer(case, tokens, real, records):
    for loop in ("trainer", "trl_sft"):
        row = records[case, loop].measurements
        samples = row["samples_per_second"]
        assert row["tokens_per_second"] / samples == pytest.approx(tokens, abs=1e-3), loop
        assert row["real_tokens_per_second"] / samples == pytest.approx(real, abs=1e-3), loop
        if CASES[case][0] is PADDED:
            # Rows of equal length are as many in each step, so the counted ones are all there is.
            assert samples * row["counted_seconds"] == pytest.approx(4 * row["steps_counted"])


def test_sft_reads_back_what_ran(records):
    row = records["lora", "trl_sft"].measurements
    assert row["trainer_class"].endswith("SFTTrainer")
    assert row["loss_implementation"] == "trl"
    assert row["autocast"] == "bf16"
    assert row["checkpointed_layers"] > 0
    plain = records["padded", "trl_sft"].measurements
    # SFTConfig's own defaults are bf16 and checkpointing.
    assert plain["autocast"] == "off"
    assert plain["checkpointed_layers"] == 0
    packed = records["packed", "trl_sft"].measurements
    assert "packing=True" in packed["trainer_settings"]
    # Best-fit packing cuts no row, so its blocks are not all full.
    assert packed["longest_row_tokens"] <= 32
    assert packed["mean_row_tokens"] < 32


def test_sft_measures_worst_batch_evaluation_and_checkpoint(records):
    row = records["ragged", "trl_sft"].measurements
    assert row["peak_allocated_bytes"] > row["typical_peak_allocated_bytes"]
    assert row["evaluate_seconds"] > 0
    assert row["save_seconds"] > 0
    assert row["accumulation_loss_scaling"] == "native"
    assert row["accumulation_loss_ratio"] == pytest.approx(1)
    # Whether new lengths took long depends on the machine.
    assert set(row["flags"]) <= {"new_lengths"}


CHATS = [
    {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]}
    for text, answer in (("good film", "yes"), ("very bad", "no"))
] * 4
TEXTS = [{"text": "a very good film"}, {"text": "bad"}] * 4
ROWS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "texts": (TEXTS, {}),
    "prompts": ([{"prompt": "was the film good", "completion": "yes"}] * 8, {}),
    "whole_prompts": (
        [{"prompt": "was the film", "completion": "good"}] * 8,
        {"completion_only_loss": False},
    ),
    "chats": (CHATS, {}),
    "answers": (CHATS, {"assistant_only_loss": True}),
    "packed": (TEXTS, {"packing": True}),
}
ANSWERS_TEMPLATE = CHAT_TEMPLATE.replace(
    "{{ message['role'] }}: {{ message['content'] }} [END] ",
    "{{ message['role'] }}: {% if message['role'] == 'assistant' %}{% generation %}"
    "{{ message['content'] }} [END] {% endgeneration %}{% else %}{{ message['content'] }} [END] "
    "{% endif %}",
)


def _raw(rows: list[Any], folder: Path, template: str) -> RawRows:
    """The rows of a file of JSON lines, before TRL prepares them."""
    tokenizer = save_word_tokenizer(folder / "tokenizer", chat_template=template)
    file = file_of(rows, folder, tokenizer=tokenizer, max_length=8)
    return raw_rows(DataSpec(file=file), architecture_config(MODEL), samples=None, seed=0)


@pytest.mark.parametrize(
    ("rows", "parameters", "reason"),
    [
        (CHATS, {"assistant_only_loss": True}, "TRL refuses these rows: .*template"),
        (TEXTS, {"assistant_only_loss": True}, "assistant_only_loss is for chats"),
        (TEXTS, {"eos_token": "<end>"}, "has no token '<end>'"),
    ],
)
def test_rows_that_trl_cannot_prepare_are_unsupported_with_the_reason(
    rows, parameters, reason, tmp_path
):
    with pytest.raises(UnsupportedError, match=reason):
        prepared(_raw(rows, tmp_path, CHAT_TEMPLATE), batching="", parameters=parameters)


def test_rows_without_room_for_an_answer_are_flagged(tmp_path):
    long = {"prompt": "the film was a very good film and a", "completion": " yes"}
    rows = [*ROWS["prompts"][0][:6], long, long]
    tokenizer = save_word_tokenizer(tmp_path / "tokenizer")
    data = DataSpec(file=file_of(rows, tmp_path, tokenizer=tokenizer, max_length=8))
    row = measured(replace(_spec("padded", "trl_sft"), data=data), tmp_path).measurements
    assert row["rows_left_out_share"] == 0.25
    assert Flag(FlagKind.ROWS_LEFT_OUT, 0.25) in flags_of(row)


@pytest.mark.parametrize("case", ROWS)
def test_prepared_rows_are_those_of_the_sft_trainer_itself(case, tmp_path):
    from transformers import AutoModelForCausalLM

    rows, parameters = ROWS[case]
    raw = _raw(rows, tmp_path, ANSWERS_TEMPLATE)
    own = {name: value for name, value in parameters.items() if name != "packing"}
    batching = "packed_rows" if "packing" in parameters else ""
    dataset, _ = prepared(raw, batching=batching, parameters=own)

    trainer = trl.SFTTrainer(
        model=AutoModelForCausalLM.from_config(architecture_config(MODEL)),
        args=trl.SFTConfig(
            **plain_defaults(trl.SFTConfig),
            output_dir=str(tmp_path),
            use_cpu=True,
            max_length=8,
            **parameters,
        ),
        train_dataset=raw.dataset,
        processing_class=raw.tokenizer,
    )
    assert dataset["input_ids"] == trainer.train_dataset["input_ids"]
    assert dataset["labels"] == trainer.train_dataset["labels"]
    if case == "answers":
        assert any(label == -100 for row in dataset["labels"] for label in row)


@pytest.mark.parametrize("name", ["SFTConfig", "DPOConfig"])
def test_own_defaults_are_those_of_trls_classes(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TRL gives fields by their former names
        config = getattr(trl, name)(output_dir="out", use_cpu=True)
    loop = {"SFTConfig": "trl_sft", "DPOConfig": "trl_dpo"}[name]
    own = AXES["loop"].variant(loop).own_defaults
    rows = [AXES[axis].variant(value).training_arguments for axis, value in own.items()]
    switches = {name for row in rows for name, value in row.items() if value is True}
    assert switches == {"gradient_checkpointing", "bf16"}
    assert all(getattr(config, name) is True for name in switches)
