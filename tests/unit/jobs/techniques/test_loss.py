"""The loss in chunks: its gradients, and what it does not compute."""

from types import SimpleNamespace

import pytest
import torch

from jobs.techniques.axes import loss


@pytest.mark.parametrize("trained", [(True, True), (True, False), (False, True), (False, False)])
def test_chunked_loss_has_the_gradients_of_cross_entropy_and_none_of_what_is_frozen(trained):
    torch.manual_seed(0)
    hidden = torch.randn(37, 8, requires_grad=True)
    weight, bias = (torch.randn(*shape) for shape in ((11, 8), (11,)))
    targets = torch.randint(0, 11, (37,))
    targets[::5] = -100
    asked = []

    def function(*arguments):
        asked.append([own is not None for own in arguments[-2:]])
        return loss._chunk_loss_and_gradients(*arguments)

    for own, is_trained in zip((weight, bias), trained, strict=True):
        own.requires_grad_(is_trained)
    inputs = [own for own in (hidden, weight, bias) if own.requires_grad]
    total = loss._chunked_sum(SimpleNamespace(function=function))
    found = total(hidden, weight, bias, targets, -100) / 3
    plain = (
        torch.nn.functional.cross_entropy(hidden @ weight.T + bias, targets, reduction="sum") / 3
    )
    torch.testing.assert_close(found, plain)
    expected = torch.autograd.grad(plain, inputs)
    torch.testing.assert_close(torch.autograd.grad(found, inputs), expected)
    assert asked == [list(trained)] * 8
