"""Predictions against what an H200 measured, and what they cost: no GPU takes part."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.spec import (
    DataSpec,
    ModelSpec,
    RowLengthDistribution,
    SyntheticData,
    TrialSpec,
    UpkeepSpec,
)
from jobs.techniques import AXES
from orchestrator import predict as predict_verb
from orchestrator import sweep
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.prediction import CARDS, Prediction
from orchestrator.reporting.verbs import prediction as reported
from orchestrator.running import background_prediction
from orchestrator.storage.tables.table_reader import read_trials_file
from tests.support.commands import ROOT, python
from tests.support.tiny_decoders import LLAMA, MODEL
from tests.support.word_tokenizer import save_word_tokenizer

RECORDED = ROOT / "docs/results/2026-11-21-all_techniques-2xh200/trials.parquet"
H200 = load_gpu("h200")
DATA_LENGTH = 512
# Each costs a trace of BERT-large, but optimizers share one.
CHOSEN: tuple[Mapping[str, Any], ...] = (
    {},
    {"optimizer": "adamw_foreach"},
    {"optimizer": "adafactor"},
    {"optimizer": "adamw_bnb_8bit"},
    {"optimizer": "paged_adamw_8bit"},
    {"activations": "checkpoint"},
    {"attention": "eager"},
    {"adapter": "lora_r8"},
    {"offload": "zero2_cpu_optimizer"},
)


def _identity(choices: Mapping[str, Any]) -> tuple[str, ...]:
    """The value of each axis; a table that is older than an axis has no column for it."""
    own = {name: choices.get(name, axis.default) for name, axis in AXES.items()}
    if own["sequence_length"] == "data":
        own["sequence_length"] = DATA_LENGTH
    return tuple(str(value) for value in own.values())


def _with_dropout(trial: TrialSpec) -> TrialSpec:
    """The trial with BERT's dropout outside of attention, which the recorded run had."""
    config = dict(trial.model.config)
    del config["hidden_dropout_prob"]
    return replace(trial, model=replace(trial.model, config=config))


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Prediction, Mapping[str, Any]]]:
    """Predictions of the chosen trials, each with its measured row."""
    base = {name: axis.default for name, axis in AXES.items()} | {
        "micro_batch": 16,
        "precision": "bf16",
    }
    wanted = {_identity({**base, **choices}) for choices in CHOSEN}
    trials = [
        _with_dropout(trial)
        for trial in plan(load_config(ROOT / "configs/all_techniques.yaml")).trials
        if _identity(trial.choices) in wanted
    ]
    measured = {_identity(row): row for row in read_trials_file(RECORDED).rows}
    predictions = predict(trials, H200)
    return [(prediction, measured[_identity(prediction.choices)]) for prediction in predictions]


@pytest.mark.slow
def test_predicted_peaks_are_those_an_h200_measured(pairs):
    assert len(pairs) == len(CHOSEN)
    for prediction, row in pairs:
        assert prediction.allocated is not None, prediction.unknown
        assert prediction.allocated.bytes == pytest.approx(row["peak_allocated_bytes"], rel=2e-3), (
            prediction.choices
        )
        assert prediction.device.low <= row["device_peak_bytes"] <= prediction.device.high, (
            prediction.choices
        )


@pytest.mark.slow
def test_predict_never_says_that_a_trial_fits_where_it_did_not(pairs):
    for prediction, row in pairs:
        for size in CARDS.values():
            assert prediction.fits(size) != "yes" or row["device_peak_bytes"] <= size


@pytest.mark.slow
def test_predicted_anatomy_adds_up(pairs):
    for prediction, row in pairs:
        assert sum(prediction.anatomy.values()) == prediction.allocated.bytes
        if prediction.choices["offload"] == "none" and prediction.choices["adapter"] == "none":
            assert prediction.anatomy["weights"] == pytest.approx(
                row["model_allocated_bytes"], rel=1e-3
            )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("encoder", {"offload": "zero2_cpu_optimizer"}),
        ("decoder_gqa", {"precision": "bf16", "micro_batch": 4}),
    ],
)
def test_predicted_peaks_that_were_once_wrong_are_right(name, choices):
    folder = ROOT / "docs/results/2026-11-21-predictions-h200" / name
    measured = read_trials_file(folder / "trials.parquet").rows
    trials = plan(load_config(ROOT / f"tests/data/predictions/first/{name}.yaml")).trials
    trial = next(trial for trial in trials if choices.items() <= trial.choices.items())
    (prediction,) = predict([trial], H200)
    (row,) = (row for row in measured if _identity(row) == _identity(trial.choices))
    assert prediction.allocated is not None, prediction.unknown
    assert prediction.allocated.bytes == pytest.approx(row["peak_allocated_bytes"], rel=5e-3)
    assert prediction.reserved.bytes == pytest.approx(row["peak_reserved_bytes"], rel=1e-2)


def test_predict_result_does_not_depend_on_earlier_traces(tiny_spec):
    spec = _with_model(
        tiny_spec({"micro_batch": 2}), "causal-lm", "llama", {"num_key_value_heads": 1}
    )
    larger = _with_model(
        tiny_spec({"micro_batch": 4}), "causal-lm", "llama", {"num_key_value_heads": 1}
    )
    (alone,) = predict([larger], H200)
    after = predict([spec, larger], H200)[1]
    assert alone.allocated == after.allocated
    assert alone.anatomy == after.anatomy


MIXTURE = {"num_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 2}


@pytest.mark.parametrize(
    ("task", "architecture", "config", "accumulation"),
    [
        ("sequence-classification", "deberta-v2", {}, 1),
        ("token-classification", "bert", {}, 1),
        ("token-classification", "bert", {}, 4),
        ("masked-lm", "bert", {}, 1),
        ("causal-lm", "llama", {"num_key_value_heads": 1}, 4),
        (
            "seq2seq-lm",
            "t5",
            {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2},
            1,
        ),
        ("image-classification", "vit", {"image_size": 32, "patch_size": 16}, 4),
        (
            "speech-seq2seq",
            "whisper",
            {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "pad_token_id": 0},
            1,
        ),
        ("causal-lm", "olmoe", MIXTURE, 1),
    ],
)
def test_predict_every_task_has_figures(tiny_spec, task, architecture, config, accumulation):
    spec = _with_model(
        tiny_spec({"precision": "bf16", "accumulation": accumulation}), task, architecture, config
    )
    (prediction,) = predict([spec], H200)
    assert prediction.unknown == ""
    assert prediction.allocated is not None
    assert prediction.anatomy["library workspaces"] >= 2 * H200.cublas_workspace_bytes


def test_predict_eager_experts_take_what_grouped_ones_take_and_have_a_wider_interval(tiny_spec):
    eager, grouped = (
        _with_model(
            tiny_spec({"precision": "bf16", "experts": experts}), "causal-lm", "olmoe", MIXTURE
        )
        for experts in ("eager", "grouped_mm")
    )
    wide, narrow = predict([eager, grouped], H200)
    assert wide.allocated.bytes == pytest.approx(narrow.allocated.bytes, rel=0.01)
    assert wide.allocated.low < narrow.allocated.low
    assert "every expert" in wide.notes[-1]
    assert narrow.notes == wide.notes[:-1]


def test_predict_compiled_trials_have_bounds_from_eager_ones(tiny_spec):
    names = ("none", "inductor_regional", "inductor")
    eager, blocks, whole = predict([tiny_spec({"compile": name}) for name in names], H200)
    assert blocks.bounds.most == eager.elsewhere.high
    assert blocks.device is None
    least = eager.anatomy["weights"] + eager.anatomy["optimizer states"]
    assert blocks.bounds.least > least
    assert whole.bounds == replace(blocks.bounds, most=None)
    assert "at least" in reported.table([blocks], ["compile"], evaluates=False)
    assert reported.row(blocks)["device_low"] == blocks.bounds.least


def _with_model(
    spec: TrialSpec, task: Any, architecture: str, config: Mapping[str, Any]
) -> TrialSpec:
    tiny = {"vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes = {} if architecture == "t5" else {**tiny, "intermediate_size": 64}
    model = ModelSpec(
        task=task, architecture=architecture, config={"vocab_size": 128, **sizes, **config}
    )
    return replace(spec, model=model)


def test_predict_trial_that_raises_is_unknown_with_the_reason(tiny_spec):
    spec = _with_model(tiny_spec(), "masked-lm", "vit", {})
    (prediction,) = predict([spec], H200)
    assert prediction.allocated is None
    assert prediction.unknown


MEASURED_PREDICT = """
import gc, resource, sys
from orchestrator import predict
status = predict.main(sys.argv[1:])
print(gc.isenabled(), "torch._inductor.compile_fx" in sys.modules, file=sys.stderr)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.slow
def test_predict_seven_billion_parameters_takes_little_host_memory(tmp_path):
    config = ROOT / "tests/data/predictions/first/lora_7b.yaml"
    first = plan(load_config(config)).trials[0].trial_id
    options = ["--json", "--gpu=h200", f"--trial={first}", f"--output={tmp_path / 'p.parquet'}"]
    done = python("-c", MEASURED_PREDICT, config, *options)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["weights_bytes"] > 13 * 2**30
    (stored,) = pq.read_table(tmp_path / "p.parquet").to_pylist()
    assert {**stored, "choices": json.loads(stored["choices"])} == row
    *_, collecting, compiler, resident = done.stderr.split()
    assert int(resident) < 4 * 2**30
    assert (collecting, compiler) == ("True", "False")


SMALL = """
model:
  task: sequence-classification
  architecture: bert
  config: {hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2}
data: {synthetic: {sequence_length: 16}}
axes: {micro_batch: [1, 8]}
"""


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further processes would import torch for a trace of milliseconds."""
    monkeypatch.setattr(background_prediction, "_MOST_PROCESSES", 1)


@pytest.mark.usefixtures("in_this_process")
def test_sweep_predict_shows_the_plan_with_its_memory(tmp_path, capsys):
    config = tmp_path / "small.yaml"
    config.write_text(SMALL)
    assert sweep.main([str(config), "--predict", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    small, large = content["predicted"]
    trial_ids = [row["trial_id"] for row in content["trials"]]
    assert trial_ids == [small["trial_id"], large["trial_id"]]
    assert 0 < small["allocated_bytes"] <= large["allocated_bytes"]
    assert sweep.main([str(config), "--predict", "h2000"]) == 2


@pytest.mark.usefixtures("in_this_process")
def test_predict_names_the_smallest_and_the_cheapest_card(tmp_path, capsys):
    config, prices = tmp_path / "small.yaml", tmp_path / "prices.yaml"
    config.write_text(SMALL)
    prices.write_text("{t4: 0.4, l4: {price: 0.8, hours: 2}, 2GiB: 0.1}")
    options = [str(config), "--memory=2GiB", f"--prices={prices}"]
    assert predict_verb.main([*options, "--json"]) == 0
    small, large = json.loads(capsys.readouterr().out)
    # The constants are assumed, so the interval holds the largest context that is known.
    assert small["cards"]["2GiB"]["fits"] == "yes"
    assert large["smallest_card"] == small["smallest_card"] == "2GiB"
    assert small["cheapest"] == {"card": "l4", "per_hour": 0.8, "per_run": 1.6}
    prices.write_text("{a1000: 0.4}")
    assert predict_verb.main(options) == 2
    assert "unknown cards ['a1000']" in capsys.readouterr().err


def _of_file(folder: Path, lengths: Sequence[int], *, positions: int = 512) -> list[Prediction]:
    """Predictions for texts of these lengths, at micro-batches 2 and 4."""
    texts = folder / "texts.jsonl"
    with texts.open("w") as file:
        for number, length in enumerate(lengths):
            row = {"text": " ".join(["good"] * length), "label": number % 2}
            file.write(json.dumps(row) + "\n")
    config = folder / "file.yaml"
    config.write_text(
        f"""
model:
  task: sequence-classification
  architecture: bert
  config: {{hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, vocab_size: 128,
           intermediate_size: 128, max_position_embeddings: {positions}}}
data:
  file:
    path: {texts}
    columns: {{text: text, labels: label}}
    tokenizer: {save_word_tokenizer(folder / "tokenizer")}
    max_length: 512
axes: {{micro_batch: [2, 4]}}
"""
    )
    return predict(plan(load_config(config)).trials, H200)


def test_predict_data_file_has_an_epoch_and_a_trial(tmp_path):
    _, ragged = _of_file(tmp_path, [20] * 99 + [480])
    assert (ragged.epoch_steps, ragged.longest_tokens) == (25, 480)
    assert ragged.trial_device is not None
    _, long = _of_file(tmp_path, [480] * 100)
    assert (long.trial_device, long.epoch_steps) == (None, None)
    # Of one long row and three short ones all are padded to the long one.
    assert ragged.allocated.bytes >= long.allocated.bytes


def test_predict_data_file_beyond_the_positions_is_refused(tmp_path):
    for prediction in _of_file(tmp_path, [20] * 99 + [480], positions=128):
        assert "480 tokens" in prediction.refused
        assert "positions for 128" in prediction.refused
        assert set(prediction.cards.values()) == {"no"}


def test_predict_padded_batch_needs_memory_for_its_mask(tiny_spec):
    spec = tiny_spec({"micro_batch": 4, "attention": "eager"})
    synthetic = spec.data.synthetic
    assert synthetic is not None
    data = replace(spec.data, synthetic=replace(synthetic, padding=0.3))
    plain, padded = predict([spec, replace(spec, data=data)], H200)
    assert plain.allocated is not None
    assert padded.allocated is not None
    assert padded.anatomy["inputs"] > plain.anatomy["inputs"]


def test_predict_evaluation_holds_its_logits_where_the_training_does_not(tiny_spec):
    model = replace(MODEL, config={**LLAMA, "vocab_size": 32_000})

    def of(rows: int, *, evaluates: bool = True, kept: int | None = None, **own) -> TrialSpec:
        spec = tiny_spec(
            {"loss": "chunked", "micro_batch": 1},
            training_arguments={"per_device_eval_batch_size": rows, **own},
            evaluate_and_save=evaluates,
            upkeep=UpkeepSpec(compute_metrics_rows=kept),
        )
        return replace(spec, model=model)

    # Together, so that a trace shared by mistake is seen.
    large, without, small, *keeping = predict(
        [
            *(of(64), of(64, evaluates=False), of(1)),
            *(of(1, kept=200), of(1, kept=200, eval_accumulation_steps=50)),
            of(1, kept=200, prediction_loss_only=True),
        ],
        H200,
    )
    tokens = 64 * 16  # of the tiny trial's rows
    logits = tokens * 32_000 * 4
    # At least the logits and their logarithms of probabilities.
    assert large.allocated.bytes - without.allocated.bytes > 1.5 * logits
    assert any("evaluation" in note for note in large.notes)
    assert not without.notes
    assert small.allocated.bytes < large.allocated.bytes / 2
    assert "logits" in large.anatomy
    # The logits of all rows that are kept, before and after those of the last batch are added.
    beyond = [own.allocated.bytes - small.allocated.bytes for own in keeping]
    row = 16 * 32_000 * 4
    assert beyond[0] == pytest.approx(2 * 200 * row, rel=0.05)
    assert beyond[1] == pytest.approx(2 * 50 * row, rel=0.1)
    assert beyond[2] == 0


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"optimizer": "paged_adamw_8bit"}, "paged states of"),
        ({"offload": "zero2_cpu_optimizer", "precision": "bf16"}, "the longest batch stands"),
    ],
)
def test_predict_says_what_its_figures_leave_open(tiny_spec, choices, words):
    rows = SyntheticData(
        sequence_length=16,
        samples=16,
        lengths=RowLengthDistribution(distribution="uniform", mean=6),
    )
    spec = replace(tiny_spec(choices), data=DataSpec(synthetic=rows))
    spec = replace(
        spec, model=replace(spec.model, config={**spec.model.config, "vocab_size": 9000})
    )
    (own,) = predict([spec], H200)
    assert sum(words in note for note in own.notes) == 1


@pytest.mark.parametrize("name", ["bert", "decoder"])
def test_predicted_evaluations_are_those_an_h100_measured(name):
    folder = ROOT / "tests/data/predictions/evaluation"
    rows = pq.read_table(folder / "peaks.parquet", filters=[("config", "=", name)]).to_pylist()
    measured = {row["trial_id"]: row for row in rows}
    trials = plan(load_config(folder / f"{name}.yaml")).trials
    compared = [own for own in predict(trials, load_gpu("h100")) if own.trial_id in measured]
    assert len(compared) == len(measured)
    for own in compared:
        row = measured[own.trial_id]
        assert own.allocated.bytes == pytest.approx(row["peak_evaluate_allocated_bytes"], rel=2e-3)
        assert own.reserved.bytes == pytest.approx(row["peak_evaluate_reserved_bytes"], rel=1e-2)
        assert own.reserved.low <= row["peak_evaluate_reserved_bytes"] <= own.reserved.high


@pytest.mark.slow
def test_predicted_epochs_of_unequal_rows_are_those_an_h100_measured():
    # The trials beside them met more lengths than a trial meets today.
    table = read_trials_file(ROOT / "tests/data/unequal_rows_h100/epoch/trials.parquet")
    epochs = {_identity(row): row for row in table.rows}
    plans = plan(load_config(ROOT / "tests/data/techniques/unequal_rows.yaml")).trials
    # The other rows run no code that these two do not.
    techniques = {"pad_to_64", "padding_free"}
    chosen = [each for each in plans if techniques & {*each.choices.values()}]
    predictions = [own for own in predict(chosen, load_gpu("h100")) if not own.unknown]
    assert len(predictions) == 2
    for own in predictions:
        epoch = epochs[_identity(own.choices)]
        assert own.allocated.bytes == pytest.approx(epoch["peak_allocated_bytes"], rel=1e-3)
        assert own.device.bytes == pytest.approx(epoch["device_peak_bytes"], rel=0.015)
        assert own.device.low <= epoch["device_peak_bytes"] <= own.device.high


@pytest.mark.parametrize(("peers", "number"), [("packed_rows", 0), ("dpo", 1)])
def test_predicted_trial_reserves_what_an_h200_measured(peers, number):
    """A 16-bit base leaves segments when it is built, which training begins without."""
    trial = plan(load_config(ROOT / f"tests/data/techniques/peers/{peers}.yaml")).trials[number]
    rows = read_trials_file(ROOT / f"tests/data/peers_h200/{peers}/trials.parquet").rows
    measured = next(row for row in rows if _identity(row) == _identity(trial.choices))
    (own,) = predict([trial], H200)
    assert own.trial_device is not None
    assert own.allocated.bytes == pytest.approx(measured["peak_allocated_bytes"], rel=1e-3)
    assert own.trial_device.bytes == pytest.approx(measured["device_peak_bytes"], rel=1e-3)
