"""Activations that wait in host memory, with TRL's implementation on the CPU.

Here the "device" is the CPU, too: TRL then copies each activation without a stream.
"""

from typing import Any

import pytest
import torch

from jobs.techniques.axes.activations import offloaded_activations
from jobs.trial.effective_code import code
from tests.support.tiny_decoders import TOKENS, checkpointed, decoder


def step(model: Any) -> tuple[float, list[torch.Tensor]]:
    """The loss and the gradients of one forward and backward pass."""
    model.zero_grad()
    loss = model(input_ids=TOKENS, labels=TOKENS).loss
    loss.backward()
    return loss.item(), [parameter.grad.clone() for parameter in model.parameters()]


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's manager takes the CPU for the accelerator, which has no pinned memory and streams."""
    from trl.models import activation_offloading

    make = activation_offloading.get_act_offloading_ctx_manager

    def on_the_host(model: Any) -> Any:
        return make(model, use_pin_memory=False, use_streams=False)

    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda *arguments, **options: torch.device("cpu")
    )
    # TRL empties the cache of the device if bitsandbytes is imported. The CPU has none.
    monkeypatch.setattr(torch.cpu, "empty_cache", lambda: None, raising=False)
    monkeypatch.setattr(activation_offloading, "get_act_offloading_ctx_manager", on_the_host)


@pytest.mark.parametrize("checkpoints", [False, True], ids=["offload", "checkpointed"])
def test_offloaded_activations_train_exactly_as_kept_ones(checkpoints):
    loss, gradients = step(decoder())
    model = decoder()
    if checkpoints:
        checkpointed(model)
    offloaded = offloaded_activations(model, "causal-lm", None)
    for _ in range(2):  # the second step meets what the first one left
        again, others = step(offloaded)
        assert again == loss
        assert all(map(torch.equal, gradients, others))


def test_offloaded_bytes_are_read_back_and_fewer_with_checkpointing():
    moved = []
    for model in (decoder(), checkpointed(decoder())):
        offloaded_activations(model, "causal-lm", None)
        step(model)
        moved.append(code(model)["offloaded_activation_bytes"])
    inputs_of_layers = 2 * 2 * 16 * 32 * 4  # layers, rows, tokens, width and bytes of a number
    assert moved[0] > moved[1] >= inputs_of_layers
    assert "offloaded_activation_bytes" not in code(decoder())


def test_evaluation_moves_nothing_to_the_host():
    model = offloaded_activations(decoder(), "causal-lm", None)
    with torch.no_grad():
        model(input_ids=TOKENS, labels=TOKENS)
    model.eval()
    model(input_ids=TOKENS, labels=TOKENS)
    assert code(model)["offloaded_activation_bytes"] == 0


def test_forward_pass_that_fails_leaves_no_hooks_behind():
    model = offloaded_activations(decoder(), "causal-lm", None)
    with pytest.raises(IndexError):
        model(input_ids=torch.full((1, 4), 1_000_000), labels=TOKENS[:1, :4])
    tracker = model.activation_offloading.tracker
    saved = len(tracker)
    weight = torch.ones(1024, requires_grad=True)
    (weight.exp() * weight).sum()
    assert len(tracker) == saved
