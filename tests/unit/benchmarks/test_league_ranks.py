"""Public rows of several GPUs: which are forecast, and how far the forecasts are."""

from tests.benchmarks import league_ranks

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
