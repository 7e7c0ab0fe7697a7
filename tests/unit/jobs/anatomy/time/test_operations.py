"""A step's time by kind of operation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.anatomy.time.operations import group_of, operations
from tests.support.traces import BUSY_STEP, nanoseconds


def test_operations_list_each_groups_time_and_the_idle_rest() -> None:
    assert nanoseconds(operations(BUSY_STEP, 80e-9), "operations") == {
        "tensor contractions": 10,
        "statistical normalizations": 10,
        "element-wise operators": 4,
        "data movement": 2,
        "optimizer and clipping": 4,
        "idle": 80 - 25,
    }


def test_operations_weight_the_passes_by_their_repetitions() -> None:
    trace = replace(BUSY_STEP, repetitions=3.0)
    found = nanoseconds(operations(trace, 200e-9), "operations")
    assert (found["tensor contractions"], found["optimizer and clipping"]) == (30, 4)
    assert found["idle"] == 200 - 2 - 3 * (15 + 4) - 4, "data of all micro-batches were fetched"


@pytest.mark.parametrize(
    ("name", "operator", "phase", "group"),
    [
        ("ncclDevKernel_AllReduce", "", "backward", "communication"),
        ("Memset (Device)", "aten::zero_", "optimizer", "data movement"),
        ("vectorized_elementwise_kernel", "aten::copy_", "forward", "data movement"),
        ("fmha_bf16", "aten::_efficient_attention_forward", "forward", "tensor contractions"),
        ("triton_red_fused_native_layer_norm_0", "", "forward", "statistical normalizations"),
        ("triton_poi_fused_gelu_1", "", "backward", "element-wise operators"),
        ("", "aten::_softmax", "forward", "statistical normalizations"),
        ("", "aten::mul", "clipping", "optimizer and clipping"),
        ("", "aten::mul", "forward", "element-wise operators"),
    ],
)
def test_group_of_a_kernel(name: str, operator: str, phase: str, group: str) -> None:
    assert group_of(name, operator, phase) == group
