"""What ``tune`` would find, forecast: which micro-batch fits, and how sure the order is."""

from dataclasses import dataclass, replace

from orchestrator.api.forecasts import CardForecast, TuneForecast
from orchestrator.planning.config import load_config
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.time.operations import Operation, StepWork, Work
from orchestrator.prediction.tune.tune_forecast import SetForecast, SpaceForecast
from orchestrator.units import GIB
from tests.conftest import ROOT, build_tiny_spec

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


def _sets(*tflops):
    specs = [replace(build_tiny_spec({"micro_batch": size})) for size in (1, 2, 4, 8, 16)]
    return [SetForecast(specs=specs, by_depth=_Traces(tflop)) for tflop in tflops]


def test_largest_micro_batch_that_fits_is_taken_where_larger_ones_are_faster():
    space = SpaceForecast(sets=_sets(100.0), left_out=0)
    for memory, size in ((5, 4), (8, 8), (100, 16)):
        (found,) = space.ranked(memory * GIB, H200)
        assert (found.spec.micro_batch, found.device_bytes) == (size, size * GIB)
    assert space.ranked(GIB // 2, H200) == []


def test_order_is_surer_the_farther_apart_the_sets_are():
    ranked = SpaceForecast(sets=_sets(900.0, 100.0, 104.0), left_out=5).ranked(9 * GIB, H200)
    assert [round(own.step.work.model_flop / 8e12) for own in ranked] == [100, 104, 900]
    answer = CardForecast(card="h200", memory_bytes=9 * GIB, ranked=ranked, per_hour=3.6)
    config = load_config(ROOT / "configs/quickstart.yaml")
    forecast = TuneForecast(config=config, answers=(answer,), considered=9, sets=3, left_out=5)
    assert "1 of 2 others may be as fast" in str(forecast)
    (plain,) = forecast.to_json()["answers"]
    seconds = ranked[0].time.likely_seconds_per_sample
    assert plain["price_of_a_million_samples"] == 3.6 * seconds * 1e6 / 3600
