"""What ``tune`` would find, forecast: which micro-batch fits, and how sure the order is."""

from dataclasses import dataclass, replace

from jobs.spec import TrainingRecipe
from orchestrator.api.forecasts import CardForecast, TuneForecast
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.time.operations import Operation, StepWork, Work
from orchestrator.prediction.tune import tune_forecast
from orchestrator.prediction.tune.tune_forecast import SetForecast, SpaceForecast
from orchestrator.units import GIB
from tests.conftest import ROOT, build_tiny_spec
from tests.support.config_files import config_of

H200 = load_gpu("h200")


@dataclass(frozen=True)
class _Traces:
    """Of a model that takes a GiB and ``tflop`` operations a sample."""

    tflop: float

    def step(self, spec):
        flop = int(self.tflop * 1e12 * spec.micro_batch)
        work = Work.of([Operation(kind="bf16 products", flop=flop)])
        return StepWork(eager=work, compiled=work, samples=spec.micro_batch, tokens=0)

    def device_bytes(self, spec):
        return spec.micro_batch * GIB


def _sets(*tflops, recipe=None):
    specs = [build_tiny_spec({"micro_batch": size}) for size in (1, 2, 4, 8, 16)]
    specs = [replace(own, training_recipe=TrainingRecipe.of(recipe or {})) for own in specs]
    return [SetForecast(specs=specs, by_depth=_Traces(tflop)) for tflop in tflops]


def _space(*tflops, others=()):
    sets = [*_sets(*tflops), *_sets(*others, recipe={"batching": "packed_whole_rows"})]
    return SpaceForecast(sets=sets, recipe=TrainingRecipe.of({}), left_out=5)


def test_largest_micro_batch_that_fits_is_taken_where_larger_ones_are_faster():
    space = _space(100.0)
    for memory, size in ((5, 4), (8, 8), (100, 16)):
        (found,) = space.ranked(memory * GIB, H200)
        assert (found.spec.micro_batch, found.device_bytes) == (size, size * GIB)
    assert space.ranked(GIB // 2, H200) == []


def test_order_is_surer_the_farther_apart_the_sets_are():
    ranked = _space(900.0, 100.0, 104.0).ranked(9 * GIB, H200)
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
    (ranked,), others = (space.ranked(9 * GIB, H200, of_other_recipes=own) for own in (False, True))
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
    monkeypatch.setattr(tune_forecast, "MOST_TRACES", 3)
    monkeypatch.setattr(tune_forecast, "_of_trace", lambda sets, *_: traced.append(sets) or [])
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
    tune_forecast.forecast_space(trials, H200)
    chosen = [[own.choices for (own, *_) in sets] for sets in traced]
    assert chosen[0] == [trials[0].choices]
    both = ("packed_whole_rows", "lora(dtype=bfloat16,r=4)")
    assert both in [(own["batching"], str(own["adapter"])) for sets in chosen for own in sets]
