"""The space of `tune`: which configurations it has, and which not."""

import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.spec import PLAIN
from jobs.techniques import AXES
from orchestrator.planning.tune_space import policy
from orchestrator.planning.tune_space.combinations import combinations, micro_batches
from orchestrator.planning.tune_space.space import Goal, TuneSpace, tune_space
from orchestrator.planning.tune_space.values import DOES_NOT_GO
from tests.support.config_files import MODEL as TEXT
from tests.support.config_files import config_of


def _nothing_is_missing(requirement: str) -> bool:
    return False


@functools.cache
def space(
    text: str = TEXT,
    limit: int = 2_000,
    *,
    has_gpu: bool = True,
    is_missing: Callable[[str], bool] = _nothing_is_missing,
    **goal: Any,
) -> TuneSpace:
    """The space of a configuration file, planned once for all tests because it takes seconds."""
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(Path(folder), text)
    return tune_space(config, Goal(**goal), has_gpu=has_gpu, is_missing=is_missing, limit=limit)


def whole_space(text: str = TEXT, **goal: Any) -> TuneSpace:
    """The space that ``tune`` has, with its thousands of configurations."""
    return space(text, limit=policy.MAX_CONFIGURATIONS, **goal)


def test_tune_space_without_axes_has_thousands_of_configurations():
    found = whole_space()
    assert 5_000 <= len(found.plan.trials) <= policy.MAX_CONFIGURATIONS
    compiled = [own for own in found.plan.trials if own.choices["compile"] != "none"]
    assert compiled


def test_tune_space_trains_like_the_users_arguments_unless_asked():
    assert {own.training_recipe for own in space().plan.trials} == {PLAIN}
    recipes = {own.training_recipe for own in space(recipe="any").plan.trials}
    assert len(recipes) > 10


def test_tune_space_begins_with_the_users_own_training():
    text = TEXT + "training_arguments: {per_device_train_batch_size: 12, bf16: true}\n"
    first = space(text, effective_batch=64).plan.trials[0]
    assert first.choices["micro_batch"] == 12
    assert first.choices["accumulation"] == 1
    assert first.choices["precision"] == "bf16"


def test_tune_space_of_a_user_with_another_optimizer_keeps_it():
    text = TEXT + "training_arguments: {optim: adafactor}\n"
    trials = space(text).plan.trials
    assert {own.choices["optimizer"] for own in trials} == {"adafactor"}


def test_tune_space_with_effective_batch_reaches_it_everywhere():
    trials = space(effective_batch=48).plan.trials[1:]
    assert {own.effective_batch for own in trials} == {48}
    assert {own.micro_batch for own in trials} == {1, 2, 3, 4, 6, 8, 12, 16, 24, 48}


def test_tune_space_of_several_gpus_shares_an_effective_batch():
    text = TEXT + "resources: {gpus_per_trial: 4}\n"
    trials = space(text, effective_batch=48).plan.trials[1:]
    assert {own.effective_batch for own in trials} == {48}
    batches = {(own.choices["sharding"], own.micro_batch * own.world_size) for own in trials}
    assert {size for name, size in batches if name == "none"} == {1, 2, 3, 4, 6, 8, 12, 16, 24, 48}
    for sharding in set(AXES["sharding"].variants) - {"none"}:
        assert {size for name, size in batches if name == sharding} == {4, 8, 12, 16, 24, 48}


def test_tune_space_of_several_gpus_combines_most_with_their_use():
    trials = space(TEXT + "resources: {gpus_per_trial: 2}\n").plan.trials
    used = sum(own.world_size == 2 for own in trials)
    assert used > 0.9 * len(trials)
    assert {own.world_size for own in space().plan.trials} == {1}


def test_tune_space_of_a_user_who_accumulates_keeps_the_effective_batch():
    arguments = "{per_device_train_batch_size: 4, gradient_accumulation_steps: 8}"
    text = f"{TEXT}training_arguments: {arguments}\n"
    assert {own.effective_batch for own in space(text).plan.trials} == {32}


def test_tune_space_keeps_within_a_limit():
    small = space(limit=500)
    assert 20 <= len(small.plan.trials) + len(small.plan.ruled_out) <= 501


def test_tune_space_leaves_out_what_the_machine_lacks():
    def is_missing(requirement: str) -> bool:
        return requirement in ("package:flash_attn", "capability>=8.0")

    found = space(is_missing=is_missing)
    reason = found.not_tried["attention"]["flash_attention_2"]
    assert reason == "needs the package flash_attn, which this machine lacks"
    of_another_gpu = found.not_tried["precision"].values()
    assert "needs a GPU of compute capability 8.0 or newer, which this machine lacks" in (
        of_another_gpu
    )
    tried = {own.choices["attention"] for own in found.plan.trials}
    assert "flash_attention_2" not in tried


def test_tune_space_changes_the_batching_only_where_rows_differ_in_length():
    equal = space()
    assert "equally long" in equal.not_tried["batching"]["padding_free"]
    lengths = "{lengths: {mean: 100}, sequence_length: 512}"
    unequal = space(text=f"{TEXT}data: {{synthetic: {lengths}}}\n")
    assert "padding_free" in {own.choices["batching"] for own in unequal.plan.trials}
    # cuDNN prepares a plan for each new length.
    assert "equally long" in equal.not_tried["attention"]["sdpa_no_cudnn"]
    assert "sdpa_no_cudnn" in {own.choices["attention"] for own in unequal.plan.trials}


def test_tune_space_leaves_out_other_rows_and_techniques_of_other_tasks():
    found = space(recipe="any")
    assert "another workload" in found.not_tried["loop"]["trl_sft"]
    assert "another workload" in found.not_tried["batching"]["packed"]
    assert {own.choices["loop"] for own in found.plan.trials} == {"trainer", "trainer_async"}
    classified = space("model: {task: sequence-classification, architecture: bert}\n")
    assert "it is for the task causal-lm only" in classified.not_tried["loss"]["chunked"]


def test_tune_space_drops_values_that_no_configuration_of_the_model_can_have():
    found = space()
    for axis in ("experts", "base"):
        assert axis not in found.config.axes
        for reason in found.not_tried[axis].values():
            assert reason.startswith(DOES_NOT_GO) or "differently" in reason
    mixture = space("model: {task: causal-lm, architecture: mixtral}\n")
    assert "grouped_mm" in mixture.config.axes["experts"]


def test_tune_space_lists_only_values_of_its_configurations():
    found = space(recipe="any")
    for axis, values in found.config.axes.items():
        assert {own.choices[axis] for own in found.plan.trials} == set(values)


def test_tune_space_of_an_adapter_offers_the_bases_that_train_like_it(tmp_path):
    adapter = "baseline: {adapter: lora_r8}\n"
    found = space(TEXT + adapter)
    assert "16bit" in found.config.axes["base"]
    assert "not quantized" in found.not_tried["base"]["dequantized"]
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    stored = {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}
    (checkpoint / "config.json").write_text(json.dumps(stored))
    text = f"model: {{task: causal-lm, name_or_path: {checkpoint}}}\n"
    assert "dequantized" in space(text + adapter).config.axes["base"]
    # A checkpoint that is not on this machine may be quantized.
    text = "model: {task: causal-lm, name_or_path: someone/some-model}\n"
    assert "dequantized" in space(text + adapter).config.axes["base"]


def test_tune_space_of_any_recipe_changes_adapter_and_base_together():
    tried = {
        (own.choices["adapter"], own.choices["base"])
        for own in whole_space(recipe="any").plan.trials
    }
    assert ("lora_r8", "bnb_4bit") in tried
    # A base that is not the usual one is not compiled, too.
    assert not any(
        own.choices["base"] != "default" and own.choices["compile"] != "none"
        for own in whole_space(recipe="any").plan.trials
    )


def test_combinations_compile_another_base_but_no_other_optimizer():
    values = {"base": "ab", "compile": "cd", "optimizer": "ef"}
    found = combinations(values, lambda _: "", effective_batch=1, has_gpu=True, limit=100)
    sets = {"".join(map(str, own.values())) for own in found.technique_sets}
    assert sets == {"ace", "bce", "ade", "acf", "bde"}


@pytest.mark.parametrize(
    ("own", "usual"),
    [
        ("bnb_4bit", "bnb_4bit(upcast=false)"),
        ("{bnb_8bit: {dtype: float16}}", "bnb_8bit(dtype=float16,upcast=false)"),
        ("{bnb_4bit: {upcast: false}}", None),
        ("16bit", None),
    ],
)
def test_tune_space_has_what_most_people_train_with(own, usual):
    text = TEXT + f"baseline: {{adapter: lora_r8, base: {own}}}\n"
    only, found, on_cpu = (
        {(trial.choices["base"], trial.choices["optimizer"]) for trial in one.plan.trials}
        for one in (
            space(text, 700),
            space(text, 700, recipe="usual"),
            space(text, 700, has_gpu=False, recipe="usual"),
        )
    )
    others = {(usual, "adamw_torch_fused")} if usual else set()
    assert {pair for pair in found - only if pair[1] == "adamw_torch_fused"} == others
    assert {optimizer for _, optimizer in found - only} >= {"adamw_bnb_8bit"}
    assert not on_cpu - only


def test_tune_space_packs_rows_of_unequal_length_as_most_people_do():
    unequal = "data: {synthetic: {lengths: {mean: 100}, sequence_length: 512}}\n"
    tried = space(TEXT + unequal, recipe="usual").config.axes["batching"]
    assert tried == ("pad", "pad_to_64", "padding_free", "packed_whole_rows")
    assert "packed_whole_rows" not in space(TEXT + unequal).config.axes["batching"]
    assert "batching" not in space(TEXT, recipe="usual").config.axes


UNEQUAL_QLORA = (
    TEXT
    + "data: {synthetic: {lengths: {mean: 100}, sequence_length: 512}}\n"
    + "baseline: {adapter: {lora: {r: 8}}, base: bnb_4bit}\n"
)


def test_tune_space_has_what_most_people_train_with_in_several_axes_at_once():
    usual = {
        "adapter": "lora(dtype=bfloat16,r=8)",
        "base": "bnb_4bit(upcast=false)",
        "batching": "packed_whole_rows",
        "optimizer": "adamw_bnb_8bit",
    }
    found = whole_space(UNEQUAL_QLORA, recipe="usual")
    having = [
        trial.choices for trial in found.plan.trials if usual.items() <= trial.choices.items()
    ]
    # Together with what changes no training.
    assert {own["loss"] for own in having} > {"plain"}
    assert {own["activations"] for own in having} > {"keep"}
    pair = {"base": usual["base"], "batching": usual["batching"]}
    others = [own.choices for own in found.plan.trials if pair.items() <= own.choices.items()]
    assert len(others) > len(having)
    exact = space(UNEQUAL_QLORA).plan.trials
    assert not any(usual["adapter"] == own.choices["adapter"] for own in exact)


def test_tune_space_trains_all_weights_in_16_bits_as_most_people_do():
    def pairs(text: str) -> set[tuple[object, object]]:
        trials = whole_space(TEXT + text, recipe="usual").plan.trials
        return {(own.choices["precision"], own.choices["optimizer"]) for own in trials}

    assert ("bf16_weights", "adamw_bnb_8bit") in pairs("baseline: {precision: bf16}\n")
    # Adapters in 16 bits are a value of their own axis.
    lora = "baseline: {precision: bf16, adapter: lora_r8}\n"
    assert not {"bf16_weights"} & {precision for precision, _ in pairs(lora)}


def test_tune_space_compiles_rows_of_unequal_length_padded_to_multiples():
    def batching(text: str) -> set[object]:
        trials = space(text).plan.trials
        return {own.choices["batching"] for own in trials if own.choices["compile"] != "none"}

    assert batching(UNEQUAL_QLORA) == {"pad_to_64"}
    assert batching(TEXT) == {"pad"}
    # Who compiles rows as they are has an answer of their own.
    own = UNEQUAL_QLORA.replace("baseline: {", "baseline: {compile: inductor, ")
    assert "pad" in batching(own)


def test_tune_space_of_a_vision_model_has_the_losses_of_a_language_model():
    text = "model: {task: image-text-to-text, architecture: qwen2_5_vl}\n"
    found = space(text + "data: {synthetic: {image_size: 56, sequence_length: 256}}\n")
    assert "chunked" in found.config.axes["loss"]
    assert "padding_free" not in found.config.axes.get("batching", ())


def test_tune_space_names_a_value_without_room_apart_from_one_that_does_not_go():
    # With one changed axis at a time, an activation budget lacks the compilation that it needs.
    found = space(limit=700)
    assert "no room" in found.not_tried["activations"]["budget_0.5"]
    assert DOES_NOT_GO in found.not_tried["base"]["16bit"]


def test_tune_space_changes_at_most_one_axis_beside_a_rare_technique():
    trials = whole_space().plan.trials
    own = trials[0].choices
    beside = set()
    for trial in trials:
        if trial.choices["compile"] == "inductor":
            changed = [axis for axis, value in trial.choices.items() if value != own[axis]]
            beside.add(len(set(changed) - {"compile", "micro_batch", "accumulation"}))
    assert beside == {0, 1}


def test_tune_space_never_compiles_with_the_loss_of_liger():
    compiled = {
        own.choices["compile"] for own in space().plan.trials if own.choices["loss"] == "liger"
    }
    assert compiled == {"none"}


def test_tune_space_of_a_user_who_compiles_with_the_loss_of_liger_begins_with_both():
    found = space(TEXT + "baseline: {loss: liger, compile: inductor}\n")
    first = found.plan.trials[0].choices
    assert (first["loss"], first["compile"]) == ("liger", "inductor")
    assert len(found.plan.trials) > 1_000


@pytest.mark.parametrize(
    ("arguments", "has_gpu", "precisions"),
    [
        ("", True, {"bf16"}),
        ("", False, {"fp32", "bf16"}),
        ("training_arguments: {fp16: true}\n", True, {"fp16", "bf16"}),
    ],
)
def test_tune_space_with_many_changes_has_a_fast_precision(arguments, has_gpu, precisions):
    found = space(TEXT + arguments, 8_000, has_gpu=has_gpu, is_missing=_needs_a_package)
    own = found.plan.trials[0].choices
    found_precisions = set()
    for trial in found.plan.trials:
        changed = [axis for axis, value in trial.choices.items() if value != own[axis]]
        if len(set(changed) - {"micro_batch", "accumulation"}) > 2:
            found_precisions.add(trial.choices["precision"])
    assert found_precisions == precisions


def _needs_a_package(requirement: str) -> bool:
    return requirement.startswith("package:")


def test_policy_names_only_axes_and_values_that_exist():
    for listed in (policy.NOT_TRIED, policy.WITH_ONE_OTHER):
        for axis, values in listed.items():
            assert set(values) <= AXES[axis].variants.keys()
    for (axis, own), faster in policy.FASTER.items():
        assert {own, *faster} <= AXES[axis].variants.keys()
    for axis, value, other in policy.NOT_TOGETHER:
        assert value in AXES[axis].variants
        assert other in AXES
    assert AXES.keys() >= policy.NOT_WITH_ALONE | policy.ALONE


def test_micro_batches_are_evenly_spaced_in_each_octave():
    assert micro_batches(16, 4) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16]
    assert micro_batches(16, 1) == [1, 2, 4, 8, 16]
