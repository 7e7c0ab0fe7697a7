"""What exists between steps, found in live objects."""

from __future__ import annotations

from collections import Counter

import torch

from jobs.anatomy.memory.live_tensors import live_tensors, nested_tensors


class Wrapper:
    """An optimizer around another, as Accelerate's and DeepSpeed's are."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer


def test_live_tensors_names_weights_gradients_and_states() -> None:
    model = torch.nn.Linear(4, 4, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    nbytes: Counter[str] = Counter()
    for tensor in live_tensors(model, Wrapper(optimizer)):
        nbytes[tensor.name] += tensor.nbytes
    assert nbytes == {"weights": 64, "gradients": 64, "optimizer states": 64}


def test_live_tensors_lists_a_shared_storage_once() -> None:
    model = torch.nn.Linear(4, 4, bias=False)
    model.register_buffer("view", model.weight.detach()[:2])
    (tensor,) = live_tensors(model, None)
    assert (tensor.name, tensor.nbytes, tensor.device) == ("weights", 64, "cpu")


def test_nested_tensors_stops_at_its_depth() -> None:
    tensor = torch.ones(1)
    assert list(nested_tensors({"a": [(tensor, None)]})) == [tensor]
    assert list(nested_tensors([[[[[tensor]]]]])) == []
