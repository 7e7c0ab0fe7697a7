"""Whole trials with TRL's DPOTrainer on the CPU; the rows are those that it prepares itself.

tests/integration/test_export_trl.py compares their losses with those of a script on its own.
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jobs.finetuning.trl.dpo_rows import prepared_pairs
from jobs.finetuning.trl.parameters import plain_defaults
from jobs.finetuning.trl.raw_rows import RawRows, pairs_of_file
from jobs.record import Outcome, TrialRecord
from jobs.spec import Choice, DataSpec, SyntheticData, TrialSpec
from jobs.trial.data.row_lengths import PairLengths
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

IPO = "trl_dpo(beta=0.5,loss_type=ipo)"
BEFORE = "trl_dpo(precompute_ref_log_probs=true)"
CASES: dict[str, tuple[SyntheticData, dict[str, Choice]]] = {
    "ragged": (RAGGED, {"accumulation": 2}),
    "padded": (PADDED, {}),
    "ipo": (PADDED, {"loop": IPO}),
    "before": (RAGGED, {"accumulation": 2, "loop": BEFORE}),
    "lora": (PADDED, {"adapter": "lora_r8", "activations": "checkpoint"}),
    "lora_before": (PADDED, {"adapter": "lora_r8", "loop": BEFORE}),
}
"""Name -> the rows, and the choices besides the loop."""
pytestmark = pytest.mark.filterwarnings(
    # TRL 1.16 calls a method that transformers 5.23 has renamed.
    "ignore:.*gradient_checkpointing:FutureWarning"
)
FAST = {"learning_rate": 1e-2}
"""A rate at which the losses of a few steps differ."""
Records = dict[str, TrialRecord]


def _spec(case: str) -> TrialSpec:
    rows, choices = CASES[case]
    chosen = {"loop": "trl_dpo", "micro_batch": 4, **choices}
    spec = build_tiny_spec(
        chosen,
        training_arguments=FAST,
        evaluate_and_save=True,
        profile=case == "padded",
        # A whole epoch has all of the unequal rows.
        steps=None if rows is RAGGED else 3,
    )
    return replace(spec, model=MODEL, data=DataSpec(synthetic=rows))


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """One trial of each case: name -> its record."""
    folder = tmp_path_factory.mktemp("scratch")
    return {case: measured(_spec(case), folder) for case in CASES}


def test_dpo_with_references_computed_before_has_the_same_losses(records):
    for before, during in (("before", "ragged"), ("lora_before", "lora")):
        losses = records[during].steps["loss"]
        assert records[before].steps["loss"] == pytest.approx(losses, rel=1e-5)


def test_dpo_counts_pairs_and_the_tokens_of_both_answers(records):
    for case, record in records.items():
        row = record.measurements
        accumulation = int(CASES[case][1].get("accumulation", 1))
        pairs = row["samples_per_second"] * row["counted_seconds"]
        assert pairs == pytest.approx(4 * accumulation * row["steps_counted"]), case
    row = records["padded"].measurements
    # Two answers of 32 positions each, of which 30 % are padding on average.
    assert row["tokens_per_second"] == pytest.approx(64 * row["samples_per_second"])
    assert row["real_tokens_per_second"] < 0.8 * row["tokens_per_second"]


def test_dpo_reads_back_its_reference_and_loss(records):
    row = records["ragged"].measurements
    assert row["trainer_class"].endswith("DPOTrainer")
    assert row["loss_implementation"] == "trl"
    assert row["reference"] == "model"
    # The weights in 32 bits, and the frequencies of the rotary positions.
    assert 0 <= row["reference_model_bytes"] - 4 * row["parameters_total"] < 1000
    assert (row["preference_loss"], row["preference_beta"]) == ("sigmoid", 0.1)
    assert "reference_seconds" not in row
    ipo = records["ipo"].measurements
    assert (ipo["preference_loss"], ipo["preference_beta"]) == ("ipo", 0.5)


def test_dpo_on_a_whole_epoch_measures_no_price_of_new_lengths(records):
    assert "new_shapes_share" not in records["ragged"].measurements


def test_dpo_keeps_no_reference_model_that_it_does_not_need(records):
    full, before = records["ragged"].measurements, records["before"].measurements
    assert (before["reference"], before["reference_model_bytes"]) == ("computed before", 0)
    assert before["reference_seconds"] > 0
    saved = full["persistent_bytes"] - before["persistent_bytes"]
    assert saved == full["reference_model_bytes"]
    lora = records["lora"].measurements
    assert (lora["reference"], lora["reference_model_bytes"]) == ("adapter off", 0)
    # No second adapter, which TRL would make for an adapter that was trained before.
    assert lora["parameters_total"] == full["parameters_total"] + lora["parameters_trainable"]


def test_dpo_measures_worst_batch_evaluation_and_checkpoint(records):
    for case in ("ragged", "before"):
        row = records[case].measurements
        assert row["peak_allocated_bytes"] > row["typical_peak_allocated_bytes"]
        assert row["longest_row_tokens"] > row["mean_row_tokens"]
        assert 0 < row["padding_share"] < 1
        assert row["evaluate_seconds"] > 0
        assert row["save_seconds"] > 0
        assert row["accumulation_loss_scaling"] == "divided"
        assert row["accumulation_loss_ratio"] == pytest.approx(1)
        assert not row["flags"]


def test_dpo_anatomy_names_the_reference_model(records):
    anatomy = records["padded"].anatomy
    sizes = {entry.name: entry.value for entry in anatomy.entries if entry.part == "memory"}
    assert sizes["reference model"] == records["padded"].measurements["reference_model_bytes"]


TEXTS = [
    {"prompt": "was the film", "chosen": " good yes", "rejected": " bad"},
    {"prompt": "a very", "chosen": " good film", "rejected": " bad film no"},
] * 4
CHATS = [
    {
        "prompt": [{"role": "user", "content": "good film"}],
        "chosen": [{"role": "assistant", "content": "yes very good"}],
        "rejected": [{"role": "assistant", "content": "no"}],
    }
] * 8


def _implicit(rows: Any) -> list[Any]:
    """The same pairs, with the prompt in both answers."""
    return [{name: row["prompt"] + row[name] for name in ("chosen", "rejected")} for row in rows]


def _pairs(rows: list[Any], folder: Path, **special_tokens: Any) -> RawRows:
    """The pairs of a file of JSON lines, before TRL prepares them."""
    tokenizer = save_word_tokenizer(
        folder / "tokenizer", chat_template=CHAT_TEMPLATE, **special_tokens
    )
    return pairs_of_file(file_of(rows, folder, tokenizer=tokenizer, max_length=6))


@pytest.mark.parametrize(
    "rows",
    [TEXTS, CHATS, _implicit(TEXTS), _implicit(CHATS)],
    ids=["texts", "chats", "implicit_texts", "implicit_chats"],
)
def test_prepared_pairs_make_the_batches_of_the_dpo_trainer(rows, tmp_path):
    from transformers import AutoModelForCausalLM

    pairs = _pairs(rows, tmp_path)
    dataset, _ = prepared_pairs(pairs, trainer="dpo", parameters={})
    model = AutoModelForCausalLM.from_config(architecture_config(MODEL))
    bare = trl.DPOTrainer(
        model=model,
        ref_model=AutoModelForCausalLM.from_config(architecture_config(MODEL)),
        args=trl.DPOConfig(
            **plain_defaults(trl.DPOConfig), output_dir=str(tmp_path), use_cpu=True, max_length=6
        ),
        train_dataset=pairs.dataset,
        processing_class=pairs.tokenizer,
    )
    assert len(dataset) == len(bare.train_dataset)
    for index in range(2):
        ours = bare.data_collator([dataset[index]])
        theirs = bare.data_collator([bare.train_dataset[index]])
        for name, tensor in theirs.items():
            assert torch.equal(ours[name], tensor), name
        # The limit of the trial cuts in the rows, and that of TRL in its collator.
        assert len(dataset[index]["prompt_ids"] + dataset[index]["chosen_ids"]) <= 6


def test_pairs_whose_prompts_fill_the_limit_are_left_out_and_counted(tmp_path):
    long = {"prompt": "was the film a very good film", "chosen": " yes", "rejected": " no"}
    pairs = _pairs([*TEXTS, long], tmp_path)
    dataset, settings = prepared_pairs(pairs, trainer="dpo", parameters={})
    assert len(dataset) == len(TEXTS)
    assert settings.left_out == pytest.approx(1 / 9)
    with pytest.raises(ValueError, match="TRL leaves no pair"):
        prepared_pairs(_pairs([long] * 4, tmp_path), trainer="dpo", parameters={})


@pytest.mark.parametrize(
    ("rows", "special_tokens", "reason"),
    [
        ([{"prompt": "a", "chosen": "yes"}], {}, "needs rejected: name yours"),
        ([*TEXTS, {**TEXTS[0], "rejected": None}], {}, "row 9 of .* has no rejected answer"),
        ([{**CHATS[0], "chosen": "yes"}], {}, "has texts and messages"),
        (TEXTS, {"eos_token": None}, "an end token, and the tokenizer .* has none"),
    ],
)
def test_pairs_that_cannot_be_trained_are_refused(rows, special_tokens, reason, tmp_path):
    with pytest.raises(ValueError, match=reason):
        _pairs(rows, tmp_path, **special_tokens)


def test_dpo_that_trl_refuses_is_unsupported_with_the_reason(tmp_path):
    spec = build_tiny_spec({"loop": "trl_dpo(sync_ref_model=true)", "adapter": "lora_r8"})
    spec = replace(spec, model=MODEL, data=DataSpec(synthetic=PADDED))
    record = measured(spec, tmp_path, Outcome.UNSUPPORTED)
    assert "sync_ref_model" in record.reason


def test_worst_batch_of_pairs_has_the_longest_answer_of_either_side():
    chosen, rejected = np.array([4, 9, 5, 3]), np.array([6, 2, 7, 8])
    lengths = PairLengths(by_column={"chosen": chosen, "rejected": rejected})
    assert lengths.worst_micro_batches(2, 2) == [[2, 0], [1, 3]]
