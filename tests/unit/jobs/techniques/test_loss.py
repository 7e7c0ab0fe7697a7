"""The loss in chunks: its gradients, and what it does not compute."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from jobs.techniques.axes import loss
from tests.support.tiny_decoders import LLAMA


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


def _decoder(*, is_chunked: bool, **adapter: Any) -> Any:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**LLAMA))
    if is_chunked:
        loss.chunked_loss(model, None, SimpleNamespace(label_smoothing_factor=0))
    return get_peft_model(model, LoraConfig(r=4, **adapter))


def test_output_layer_that_peft_copies_is_the_one_that_is_trained_and_evaluated():
    """PEFT trains a copy of a layer that ``modules_to_save`` names."""
    found: list[Any] = []
    rows = torch.randint(0, LLAMA["vocab_size"], (2, 9))
    adapter = {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}
    for is_chunked in (False, True):
        model = _decoder(is_chunked=is_chunked, **adapter)
        own = model.base_model.model.lm_head.modules_to_save["default"]
        with torch.no_grad():
            own.weight += 0.1
        model(input_ids=rows, labels=rows).loss.backward()
        found.append((own.weight.grad, model.eval()(input_ids=rows).logits))
    torch.testing.assert_close(found[1], found[0])


def test_adapter_of_the_output_layer_is_refused():
    model = _decoder(is_chunked=True, target_modules=["lm_head"])
    rows = torch.randint(0, LLAMA["vocab_size"], (2, 9))
    with pytest.raises(NotImplementedError, match="its output layer has an adapter"):
        model(input_ids=rows, labels=rows)
