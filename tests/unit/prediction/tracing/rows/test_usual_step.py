"""The work of a usual step on rows of unequal length."""

from dataclasses import replace
from unittest.mock import Mock

import pytest

from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import likely_memory, longest_rows_group, predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.model_group import ModelGroup
from orchestrator.prediction.shared import Shared
from orchestrator.prediction.time.step_time import step_time
from orchestrator.prediction.tracing.fake_step import FakeStep
from orchestrator.prediction.tracing.rows import epoch_orders
from orchestrator.prediction.tune import traced_sets
from orchestrator.prediction.tune.tune_forecast import (
    forecast_space,
    largest_that_fit,
)
from orchestrator.prediction.tune.worth_tracing import worth_tracing
from tests.support.config_files import config_of

CONFIG = """
model:
  task: causal-lm
  architecture: llama
  config: {hidden_size: 1024, intermediate_size: 2816, num_attention_heads: 8,
    num_hidden_layers: LAYERS, vocab_size: 8192}
data: {synthetic: {sequence_length: 1024, samples: 24, lengths: {mean: 300, sigma: 0.7}}}
axes: AXES
"""
GPU = load_gpu("h200")


def trials_of(tmp_path, axes, layers=2):
    text = CONFIG.replace("AXES", axes).replace("LAYERS", str(layers))
    return plan(config_of(tmp_path, text)).trials


def group_of(spec):
    return ModelGroup([spec], FakeStep(spec, GPU), GPU, Shared())


def work_of(work, column):
    return sum(float((rows[:, column] * rows[:, 2]).sum()) for rows in work.by_kind.values())


@pytest.mark.parametrize(
    ("axes", "within"),
    [
        ("{micro_batch: 4, precision: bf16}", 0.02),
        ("{micro_batch: 2, accumulation: 3, precision: bf16}", 0.02),
        # Padded or not, attention reads another mask.
        ("{micro_batch: 4, batching: group_by_length, precision: bf16}", 0.05),
        # A joined batch sees all of its positions, so its work is no line in them.
        ("{micro_batch: 4, batching: padding_free, precision: bf16}", 0.03),
    ],
)
def test_usual_step_has_the_mean_work_of_the_epochs_steps(tmp_path, axes, within):
    (spec,) = trials_of(tmp_path, axes)
    group = group_of(spec)
    usual = group.step_work(spec)
    batches = group.step.batches
    steps = epoch_orders.epoch(spec, batches.lengths, batches.collate, spec.measure.seed)
    traced = []
    for step in steps:
        for number, shape in enumerate(step):
            batch = batches.of_shape(shape)
            accumulated = spec.accumulation > 1
            both = group.step.micro_batches(batch, samples=1, accumulated=accumulated)
            traced.append(both[number > 0])
    update = group._update_work(spec)
    for column in (0, 1):
        of_step = sum(work_of(own.work.eager, column) for own in traced) / len(steps)
        expected = of_step + work_of(update, column)
        assert work_of(usual.eager, column) == pytest.approx(expected, rel=within)
    assert usual.samples == spec.effective_batch


def test_a_packed_block_counts_as_the_rows_in_it(tmp_path):
    padded, packed = trials_of(tmp_path, "{micro_batch: 2, batching: [pad, packed_whole_rows]}")
    step = group_of(packed).step_work(packed)
    lengths = group_of(padded).step.batches.lengths.tokens
    mean = lengths.mean()
    assert 0.8 * 1024 / mean < step.samples / 2 <= 1024 / mean
    # Its blocks have hardly any padding, joined or not.
    assert step.tokens / step.samples == pytest.approx(mean, rel=0.05)


def test_blocks_in_one_sequence_have_as_many_tokens_as_blocks_side_by_side(tmp_path):
    for spec in trials_of(
        tmp_path, "{micro_batch: 2, batching: packed, attention: [sdpa, varlen]}"
    ):
        assert group_of(spec).step_work(spec).tokens == 2 * 1024


def test_space_of_unequal_rows_is_forecast_by_usual_steps(tmp_path, monkeypatch):
    trials = trials_of(tmp_path, "{micro_batch: [1, 4, 8], precision: bf16}", layers=4)
    space = forecast_space(trials, [(GPU, GPU.total_bytes)])
    (candidate,) = space.ranked()
    # An epoch's other rows leave more in the allocator's cache.
    (longest,) = (own for own in space.fitting[0] if own.spec == candidate.spec)
    assert longest.is_of_longest
    most = predict([candidate.spec], GPU)[0].device.most
    assert candidate == replace(longest, is_of_longest=False, device_bytes=most)
    assert replace(space, asked=[(GPU, most - 1)], fitting=[[longest]]).ranked() == []
    (sets,) = worth_tracing(trials)
    refusing = Mock(side_effect=AttributeError("another version"))
    monkeypatch.setattr(traced_sets, "traced_step", refusing)
    with pytest.raises(AttributeError, match="another version"):
        largest_that_fit(sets, GPU, ())
    monkeypatch.undo()
    found = {own.trial_id: own for own in largest_that_fit(sets, GPU, ())}
    assert found.keys() == {own.trial_id for own in trials}
    (epoch,) = predict([candidate.spec], GPU)
    (in_one_order,) = likely_memory([candidate.spec], GPU)
    assert in_one_order.device.bytes == epoch.device.bytes
    assert in_one_order.trial_device.bytes == epoch.trial_device.bytes
    likely = epoch.device.bytes
    assert found[candidate.spec.trial_id].device.bytes == pytest.approx(likely, abs=1)
    assert likely < most
    # In a smaller budget, the fastest that fits has an epoch of its own.
    small, middle, _ = trials
    budget = sum(found[own.trial_id].device.bytes for own in (small, middle)) // 2
    (forecast,) = (
        own
        for own in largest_that_fit(sets, GPU, (GPU.total_bytes, budget))
        if own.trial_id == small.trial_id
    )
    (epoch_of_small,) = likely_memory([small], GPU)
    assert forecast.device.bytes == pytest.approx(epoch_of_small.device.bytes, abs=1)
    step = group_of(candidate.spec).step_work(candidate.spec)
    whole = step_time(step, GPU)
    assert candidate.time.seconds == pytest.approx(whole.seconds, rel=0.05)
    # The longest rows take longer, but none is of a new length.
    longest = replace(candidate.spec.data.synthetic, lengths=None)
    equal = replace(candidate.spec, data=replace(candidate.spec.data, synthetic=longest))
    known = step_time(replace(step, new_shapes=0.0), GPU)
    assert known.seconds < 0.8 * step_time(group_of(equal).step_work(equal), GPU).seconds
    assert whole.seconds > known.seconds
    assert whole.host_seconds - known.host_seconds == pytest.approx(whole.seconds - known.seconds)


def test_order_that_is_not_known_takes_the_most_of_many(tmp_path, monkeypatch):
    (grouped,) = trials_of(tmp_path, "{micro_batch: 4, batching: group_by_length}", layers=4)
    own = epoch_orders.orders
    monkeypatch.setattr(epoch_orders, "_UNKNOWN_ORDERS", 4)
    every = []
    for number in range(4):
        monkeypatch.setattr(epoch_orders, "orders", lambda *rows, n=number: own(*rows)[n : n + 1])
        every.append(likely_memory([grouped], GPU)[0].device.bytes)
    monkeypatch.setattr(epoch_orders, "orders", own)
    assert len(set(every)) > 1
    assert likely_memory([grouped], GPU)[0].device.bytes == max(every)
    # An order that the seed decides is replayed alone.
    (drawn,) = trials_of(tmp_path, "{micro_batch: 4}", layers=4)
    assert epoch_orders.is_known(drawn)
    assert not epoch_orders.is_known(grouped)


def test_tiles_of_a_loss_are_interpolated_where_all_of_them_are_whole(tmp_path, monkeypatch):
    """Those of TRL: a small batch has a smaller tile, so that no line leads through its size."""
    sizes = "6, 8, 9, 12, 1, 2, 16"
    lora = "{lora: {r: 8, target_modules: all-linear}}"
    frozen = f"precision: bf16, base: 16bit, adapter: {lora}"
    axes = f"{{micro_batch: [{sizes}], {frozen}, loop: trl_dpo}}"
    trials = trials_of(tmp_path, axes)
    step = FakeStep(trials[0], GPU)
    group = longest_rows_group(trials, step, GPU, Shared())
    trace, traced = step.micro_batches, []

    def counted(batch, *, samples, accumulated):
        traced.append(samples)
        return trace(batch, samples=samples, accumulated=accumulated)

    monkeypatch.setattr(step, "micro_batches", counted)
    for spec in trials:
        found = group.first(spec)
        batch = step.batches.worst(spec.micro_batch)
        whole, _ = trace(batch, samples=spec.micro_batch, accumulated=False)
        assert found == whole, spec.micro_batch
    assert traced == [2, 16, 6, 8, 1]


def test_compiled_code_keeps_as_little_of_each_length_of_an_epoch(tmp_path):
    (spec,) = trials_of(tmp_path, "{micro_batch: 8, precision: bf16}", layers=4)
    whole, few = (group_of(spec).memory(spec, kept=own) for own in (1.0, 0.1))
    saved = group_of(spec).first(spec).saved_bytes
    for figure in ("device", "trial_device"):
        less = getattr(whole, figure).bytes - getattr(few, figure).bytes
        assert less == pytest.approx(0.9 * saved, rel=0.25)
