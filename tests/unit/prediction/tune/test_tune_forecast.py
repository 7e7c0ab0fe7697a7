"""What ``tune`` would find, forecast: which micro-batch fits, and how sure the order is."""

import random
import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from jobs.spec import TrainingRecipe
from orchestrator.api.forecasts import CardForecast, TuneForecast
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.planning.tune_space.combinations import micro_batches
from orchestrator.prediction.bounds import traceable
from orchestrator.prediction.estimator import predict, traced_step
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.model_group import ModelGroup
from orchestrator.prediction.shared import Shared
from orchestrator.prediction.time.operations import Operation, StepWork, Work
from orchestrator.prediction.time.ranks_time import time_of
from orchestrator.prediction.tune import traced_sets, tune_forecast, worth_tracing
from orchestrator.prediction.tune.traced_sets import CompiledMemory, TracedSets
from orchestrator.prediction.tune.tune_forecast import SpaceForecast
from orchestrator.units import GIB
from tests.conftest import ROOT, build_tiny_spec
from tests.support.config_files import config_of

H200 = load_gpu("h200")


@dataclass(frozen=True)
class _Traces(TracedSets):
    """Of a model that takes a GiB and ``tflop`` operations a sample."""

    tflop: float = 1.0

    def step(self, spec):
        flop = int(self.tflop * 1e12 * spec.micro_batch)
        work = Work.of([Operation(kind="bf16 products", flop=flop)])
        return StepWork(eager=work, compiled=work, samples=spec.micro_batch, tokens=0)

    def device_bytes(self, spec):
        return spec.micro_batch * GIB


EQUAL = SimpleNamespace(step=SimpleNamespace(batches=SimpleNamespace(ragged=None)))
"""A group of rows of equal length."""


def _fastest(tflops, gib, recipe=None):
    fastest = []
    for tflop, optimizer in zip(tflops, ("adamw_torch", "adafactor", "sgd"), strict=False):
        choices = {"optimizer": optimizer}
        specs = [build_tiny_spec({**choices, "micro_batch": size}) for size in (1, 2, 4, 8, 16)]
        specs = [replace(own, training_recipe=TrainingRecipe.of(recipe or {})) for own in specs]
        found = _Traces(EQUAL, None, tflop=tflop).fitting(specs, H200, int(gib * GIB))
        fastest += [max(found, key=lambda own: own.spec.micro_batch)] if found else []
    return fastest


def _space(*tflops, gib=(9,), others=()):
    packed = {"batching": "packed_whole_rows"}
    fitting = [[*_fastest(tflops, own), *_fastest(others, own, packed)] for own in gib]
    sets = len(tflops) + len(others)
    return SpaceForecast(
        asked=[(H200, int(own * GIB)) for own in gib],
        fitting=fitting,
        recipe=TrainingRecipe.of({}),
        sets=sets,
        left_out=5,
    )


def test_largest_micro_batch_that_fits_is_taken_where_larger_ones_are_faster():
    sizes = {5: 4, 8: 8, 100: 16}
    space = _space(100.0, gib=(*sizes, 0.5))
    for asked, size in enumerate(sizes.values()):
        (found,) = space.ranked(asked)
        assert (found.spec.micro_batch, found.device_bytes) == (size, size * GIB)
    assert space.ranked(len(sizes)) == []


@pytest.mark.parametrize("seed", range(20))
def test_few_sizes_are_asked_for_until_the_largest_that_fits_is_known(seed):
    draw = random.Random(seed)
    specs = [build_tiny_spec({"micro_batch": size}) for size in micro_batches(1024, 8)]
    constant, each, floor = draw.uniform(1, 20), draw.uniform(0.01, 3), draw.uniform(0, 40)
    asked = []

    def device_bytes(spec):
        asked.append(spec.micro_batch)
        unknown = spec.micro_batch > 800
        return sys.maxsize if unknown else max(floor, constant + each * spec.micro_batch) * GIB

    for memory in (1, 16, 24, 80):
        asked.clear()
        found = traced_sets._how_many_fit(specs, memory * GIB, device_bytes)
        assert len(asked) <= 11
        fitting = [own for own in specs if device_bytes(own) <= memory * GIB]
        assert specs[:found] == fitting


def test_order_is_surer_the_farther_apart_the_sets_are():
    ranked = _space(900.0, 100.0, 104.0).ranked()
    assert [round(own.step.work.model_flop / 8e12) for own in ranked] == [100, 104, 900]
    answer = CardForecast(card="h200", memory_bytes=9 * GIB, ranked=ranked, others=(), per_hour=3.6)
    config = load_config(ROOT / "configs/quickstart.yaml")
    forecast = TuneForecast(config=config, answers=(answer,), considered=9, sets=3, left_out=5)
    assert "1 of 2 others may be as fast" in str(forecast)
    (plain,) = forecast.to_json()["answers"]
    seconds = ranked[0].time.likely_seconds_per_sample
    assert plain["price_of_a_million_samples"] == 3.6 * seconds * 1e6 / 3600


def test_what_trains_differently_has_an_answer_of_its_own():
    space = _space(200.0, others=(80.0, 60.0))
    (ranked,), others = (space.ranked(of_other_recipes=own) for own in (False, True))
    assert [round(own.step.work.model_flop / 8e12) for own in (ranked, *others)] == [200, 60, 80]
    answer = CardForecast(
        card="h200", memory_bytes=9 * GIB, ranked=(ranked,), others=others, per_hour=None
    )
    config = load_config(ROOT / "configs/quickstart.yaml")
    forecast = TuneForecast(config=config, answers=(answer,), considered=9, sets=3, left_out=5)
    first, second = str(forecast).split("trains differently")
    assert "surely the fastest of these sets" in first
    assert second.count("time:") == 1
    assert len(forecast.to_json()["answers"][0]["trains_differently"]) == 2
    slower = replace(forecast, answers=(replace(answer, ranked=others[:1], others=(ranked,)),))
    assert "trains differently" not in str(slower)


def test_traces_include_what_trains_most_differently(tmp_path, monkeypatch):
    traced = []
    monkeypatch.setattr(worth_tracing, "MOST_TRACES", 3)
    monkeypatch.setattr(tune_forecast, "of_trace", lambda sets, *_: traced.append(sets) or [])
    text = """
model: {task: causal-lm, architecture: llama, config: {hidden_size: 64, num_attention_heads: 4,
    intermediate_size: 128, num_hidden_layers: 8, vocab_size: 128}}
data: {synthetic: {sequence_length: 64, samples: 40, lengths: {mean: 30}}}
training_arguments: {bf16: true}
axes:
  activations: [keep, checkpoint]
  adapter: [{lora: {r: 4}}, {lora: {r: 4, dtype: bfloat16}}]
  batching: [pad, packed_whole_rows]
"""
    trials = plan(config_of(tmp_path, text)).trials
    tune_forecast.forecast_space(trials, [(H200, H200.total_bytes)])
    chosen = [[own.choices for (own, *_) in sets] for sets in traced]
    assert chosen[0] == [trials[0].choices]
    both = ("packed_whole_rows", "lora(dtype=bfloat16,r=4)")
    assert both in [(own["batching"], str(own["adapter"])) for sets in chosen for own in sets]


def test_traces_change_each_axis_before_any_axis_twice(tmp_path):
    text = """
model: {task: causal-lm, architecture: llama, config: {hidden_size: 64, num_attention_heads: 4,
    intermediate_size: 128, num_hidden_layers: 8, vocab_size: 128}}
data: {synthetic: {sequence_length: 64}}
trials: [{}, {activations: checkpoint}, {activations: checkpoint_selective}, {activations: offload},
    {loss: chunked}, {attention: eager}]
"""
    trials = plan(config_of(tmp_path, text)).trials
    own, *others = [sets[0][0].choices for sets in worth_tracing.worth_tracing(trials)]
    changed = [{axis for axis in own if own[axis] != choices[axis]} for choices in others]
    # Other orders take turns with this one, and begin with activations, too.
    assert changed == [{"activations"}, {"loss"}, {"activations"}, {"attention"}, {"activations"}]


def test_states_on_the_host_are_forecast_where_nothing_else_fits(tmp_path):
    text = """
model: {task: causal-lm, architecture: llama, config: {hidden_size: 2048, num_attention_heads: 8,
    intermediate_size: 5504, num_hidden_layers: 8, vocab_size: 8192}}
data: {synthetic: {sequence_length: 64}}
training_arguments: {bf16: true}
axes: {offload: [none, zero2_cpu_optimizer], activations: [keep, checkpoint], micro_batch: [1, 2]}
"""
    config = config_of(tmp_path, text)
    trials = plan(config).trials
    small, large = 5 * GIB, H200.total_bytes
    forecast = tune_forecast.forecast_space(trials, [(H200, small), (H200, large)])
    (first, *_), (fastest, *_) = forecast.ranked(0), forecast.ranked(1)
    assert first.spec.choices["offload"] == "zero2_cpu_optimizer"
    assert first.time is None
    assert fastest.spec.choices["offload"] == "none"
    assert fastest.time is not None
    answer = CardForecast(card="h200", memory_bytes=small, ranked=[first], others=(), per_hour=3.6)
    words = TuneForecast(config=config, answers=(answer,), considered=9, sets=3, left_out=5)
    assert "time not known" in str(words)
    (plain,) = words.to_json()["answers"]
    assert plain["price_of_a_million_samples"] is None


TWO_GPUS = """
model: {task: causal-lm, architecture: llama, config: {hidden_size: 512, num_attention_heads: 8,
    intermediate_size: 1376, num_hidden_layers: 8, vocab_size: 8192}}
data: {synthetic: {sequence_length: 512}}
resources: {gpus_per_trial: 2}
training_arguments: {bf16: true}
axes: {sharding: [none, ddp, fsdp2_full, zero2], micro_batch: [4, 8], accumulation: 1}
"""


def test_ways_to_share_a_training_are_forecast_as_predict_has_them(tmp_path):
    trials = plan(config_of(tmp_path, TWO_GPUS)).trials
    forecast = tune_forecast.forecast_space(trials, [(H200, H200.total_bytes)])
    ranked = forecast.ranked()
    assert {own.spec.choices["sharding"] for own in ranked} == {
        "none",
        "ddp",
        "fsdp2_full",
        "zero2",
    }
    for own, prediction in zip(ranked, predict([own.spec for own in ranked], H200), strict=True):
        assert own.device_bytes == prediction.device.most
        assert own.time == time_of(prediction.step, H200)


def test_of_a_checkpointed_block_the_inputs_are_kept_compiled_or_not(tmp_path):
    text = TWO_GPUS.replace("2}\ntraining", "1}\ntraining").split("axes:")[0]
    axes = "{micro_batch: 4, activations: [keep, checkpoint], compile: inductor_regional}"
    kept = []
    for spec in plan(config_of(tmp_path, f"{text}axes: {axes}")).trials:
        simpler = traceable(spec).spec
        with traced_step(simpler, H200, shared := Shared()) as step:
            group = ModelGroup([simpler], step, H200, shared)
            kept.append(CompiledMemory(group).kept(spec))
    assert kept[0] < kept[1] == 1.0


def test_of_kernels_that_are_no_operators_all_activations_are_kept():
    choices = {"kernels": "liger", "compile": "inductor_regional"}
    assert CompiledMemory(EQUAL).kept(build_tiny_spec(choices)) == 1.0
