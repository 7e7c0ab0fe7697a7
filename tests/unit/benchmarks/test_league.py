"""The estimates, and the public rows of several GPUs, that are compared with our forecasts."""

import pytest

from tests.benchmarks import league, league_ranks
from tests.benchmarks.league import Case, public_cases, table

SEVEN_BILLION = 7_000_000_000
LAYERS = {"layers": 32, "hidden": 4096, "ffn": 11008, "vocabulary": 32000, "tokens": 2048}


def _case(**fields: object) -> Case:
    plain = {"name": "a", "method": "full", "format": "mixed", "adam": True}
    return Case(**{**plain, "parameters": SEVEN_BILLION, **LAYERS, **fields})


def test_estimates_are_those_that_their_sources_give():
    assert league.rule_of_18(_case()) == 126e9
    assert league.rule_of_18(_case(format="fp32")) == 112e9
    assert league.accelerate(_case()) == 56e9
    assert league.deepspeed(_case(offload="zero2_cpu_optimizer")) == 14e9
    # 34 bytes for each of 2048 × 4096 values in 32 layers are 9.1 GB.
    assert league.megatron(_case()) == pytest.approx(126e9 + 1.05 * 9.29e9, rel=1e-2)
    assert league.training_hub(_case()) == pytest.approx(1.1 * (112e9 + 1.07e9 + 0.7e9), rel=1e-2)
    lora = league.training_hub(_case(method="lora", rank=16))
    assert lora == pytest.approx(1.1 * 15.2e9, rel=2e-2)


def test_estimates_that_know_no_adapters_do_not_answer():
    for tool in ("accelerate estimate-memory", "18 bytes a parameter", "Megatron-LM"):
        assert league.TOOLS[tool](_case(method="qlora")) is None


def test_table_counts_answers_errors_and_false_fits():
    # It says 126 GB where 150 were needed, so it says that 141 GiB are enough.
    case = _case(measured=140 * 10**9, device=160 * 10**9)
    (line,) = (line for line in table([case]) if line.startswith("| 18 bytes"))
    assert line == "| 18 bytes a parameter | 1 of 1 | 10.0% | 10.0% | 1 |"


def test_public_rows_have_a_measurement_and_their_predictions():
    cases = list(public_cases())
    assert sum("allocated_bytes" in case.ours for case in cases) == 10
    assert all(case.measured or case.kind == "oom" for case in cases)


ROW = {
    "number": 7,
    "source": "a",
    "gpu": "4x A100",
    "card": "A100",
    "gpus": 4,
    "nodes": 1,
    "model": "GPT hidden 1024, 12 layers, 16 heads (0.15 B in blocks)",
    "method": "full",
    "framework": "Megatron-LM dp4 tp1 pp1, global batch 32",
    "batch": 2,
    "tokens": 1024,
    "dtype": "16-bit mixed",
    "kind": "",
    "reserved_bytes": None,
    "step_seconds": 0.5,
}
FORECAST = {"number": 7, "step_seconds": 0.4, "step_seconds_low": 0.3, "step_seconds_high": 0.45}


def test_rows_that_no_configuration_describes_have_a_reason():
    assert league_ranks.reason(ROW) == ""
    for change in (
        {"nodes": 2},
        {"framework": "Megatron-LM dp2 tp2 pp1, global batch 32"},
        {"framework": "Composer, FULL_SHARD"},
        {"card": "Gaudi2"},
    ):
        assert league_ranks.reason(ROW | change)


def test_row_outside_its_interval_is_a_miss():
    rows = [ROW, {**ROW, "number": 8, "nodes": 2}]
    lines = list(league_ranks.compare(rows, [FORECAST], misses=True))
    assert lines[0] == "1 of 2 rows have a forecast"
    assert "| Megatron-LM | A100 | step_seconds | 1 | 20.0% | 20.0% | 0 |" in lines
    assert lines[-1].endswith("step_seconds 0.5, predicted 0.4 (0.3 to 0.45)")
    held = list(league_ranks.compare([ROW], [FORECAST | {"step_seconds_high": 0.6}], misses=True))
    assert held[-1] == "| Megatron-LM | A100 | step_seconds | 1 | 20.0% | 20.0% | 1 |"


def test_global_batch_is_accumulated_on_each_gpu():
    (trial,) = league_ranks._trials([ROW], 1024)
    assert trial.choices["sharding"] == "ddp"
    assert (trial.micro_batch, trial.accumulation, trial.world_size) == (2, 4, 2)
