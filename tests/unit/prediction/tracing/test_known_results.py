"""Operators that ran before: their results are made again, and are equal to new ones."""

import copy
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from orchestrator.prediction.tracing.known_results import KnownResults

_aten = torch.ops.aten


def _properties(output: Any, tensor: torch.Tensor) -> list[tuple[Any, ...]]:
    outputs = output if isinstance(output, (tuple, list)) else [output]
    memory = tensor.untyped_storage()._cdata
    return [
        (
            own.shape,
            own.stride(),
            own.dtype,
            own.storage_offset(),
            own.untyped_storage().nbytes(),
            own is tensor,
            own.untyped_storage()._cdata == memory,
        )
        for own in outputs
        if own is not None
    ]


@pytest.mark.parametrize(
    ("func", "others"),
    [
        (_aten.mul.Scalar, (2,)),
        (_aten.add_.Scalar, (1,)),
        (_aten.slice.Tensor, (1, 2, 5)),
        (_aten.t.default, ()),
        (_aten.split.Tensor, (3,)),
        (_aten.native_layer_norm.default, ([8], None, None, 1e-5)),
        (_aten._foreach_add.Scalar, (1.0,)),
    ],
)
def test_result_made_again_is_equal_to_a_new_one(func, others):
    results = KnownResults()
    with FakeTensorMode():
        for _ in range(3):
            tensor = torch.empty(8, 8)[2:]
            first = [tensor] if "foreach" in func.name() else tensor
            made = results.run(func, (first, *others), {})
            assert _properties(made, tensor) == _properties(func(first, *others), tensor)


def test_operator_runs_once_for_equal_inputs_and_again_for_others():
    calls: list[Any] = []

    class _Counted:
        """An operator that says when it runs."""

        def __init__(self, func: Any) -> None:
            self._func = func
            self.namespace, self.tags, self._schema = func.namespace, func.tags, func._schema
            self.is_view = func.is_view

        def __call__(self, *args: Any) -> Any:
            calls.append(args)
            return self._func(*args)

    results, counted = KnownResults(), _Counted(_aten.mul.Scalar)
    with_data = torch.ones(4)
    with results.mode:
        integers = torch.empty(4, dtype=torch.int64)
        dtypes = [results.run(counted, (integers, own), {}).dtype for own in (1, 1, 1.0, 1.0, True)]
        results.run(counted, (torch.empty(4), 1), {})
        results.run(counted, (torch.empty(8)[::2], 1), {})
        for own in (with_data, torch.empty(4, device="meta")):
            made = [results.run(counted, (own, 1), {}).device for _ in range(2)]
            assert made == [own.device] * 2
    assert dtypes == [torch.int64, torch.int64, torch.float32, torch.float32, torch.int64]
    assert len(calls) == 7


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_deep_copy_of_a_tensor_has_the_mode_of_the_tensor():
    mode = KnownResults().mode
    with mode:
        tensor = torch.empty(2)
        assert copy.deepcopy(tensor).fake_mode is mode
