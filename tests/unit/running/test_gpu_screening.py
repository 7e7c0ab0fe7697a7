"""Which GPUs are fit: judged by what each does beside the others of its model."""

from orchestrator.running.gpu_screening import judge


def measured(*rates: float, slowed: tuple[str, ...] = ()) -> list[dict[str, object]]:
    """Measurements of one model, each so many times as fast as it should be."""
    return [
        {
            "device": "H200",
            "slowed": slowed,
            "flops_per_second": {"bf16": rate},
            "copy_bytes_per_second": 1.0,
        }
        for rate in rates
    ]


def test_slower_than_the_median_is_unfit():
    assert judge(dict(enumerate(measured(1.0, 0.94, 1.3)))) == {}
    assert judge(dict(enumerate(measured(1.0, 0.9, 1.0)))) == {
        1: "it is 10% slower than the median of its model at bf16"
    }


def test_dead_and_throttled_gpus_are_unfit():
    answers = [
        *measured(1.0, 1.0),
        {"failed": "CUDA error: unknown error"},
        *measured(1.0, slowed=("power brake",)),
    ]
    reasons = judge(dict(enumerate(answers)))
    assert set(reasons) == {2, 3}
    assert reasons[2] == "it could not be measured: CUDA error: unknown error"
    assert "power brake" in reasons[3]
