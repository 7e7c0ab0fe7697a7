"""The stacks of layers of real models, and the order in which both passes reach them."""

import copy

import pytest
import torch
from transformers import AutoConfig, AutoModel

from jobs.trackers.sources.layer_stacks import report_stacks, stacks

SMALL = {"vocab_size": 64, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
MODELS = {
    "bert": ({**SMALL, "num_hidden_layers": 2}, ["BertEncoder"]),
    "llama": ({**SMALL, "num_hidden_layers": 2, "num_key_value_heads": 2}, ["LlamaModel"]),
    "t5": ({"vocab_size": 64, "d_model": 16, "d_ff": 32, "num_layers": 2}, ["T5Stack"] * 2),
    "bart": ({"vocab_size": 64, "d_model": 16}, ["BartEncoder", "BartDecoder"]),
    "mixtral": ({**SMALL, "num_hidden_layers": 2, "num_key_value_heads": 2}, ["MixtralModel"]),
    "clip": ({}, ["CLIPEncoder", "CLIPEncoder"]),
}


@pytest.mark.parametrize("architecture", MODELS)
def test_stacks_are_the_outermost_lists_of_layers(architecture):
    config, names = MODELS[architecture]
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model(architecture, **config))
    assert [type(own).__name__ for own in stacks(model)] == names


def _tokens(rows: int) -> torch.Tensor:
    return torch.arange(8 * rows).reshape(rows, 8) % 64


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable:FutureWarning")
@pytest.mark.parametrize("checkpoints", [False, True])
def test_every_stack_is_reported_once_in_each_pass_of_a_model_or_its_copy(checkpoints):
    config = AutoConfig.for_model(
        "t5", **MODELS["t5"][0], num_heads=2, d_kv=8, decoder_start_token_id=0
    )
    plain = AutoModel.from_config(config)
    reported: list[str] = []
    phase = "forward"
    model = copy.deepcopy(plain)
    report_stacks(model, lambda: reported.append(phase))
    copied = copy.deepcopy(model)
    for own in (model, copied):
        if checkpoints:
            own.gradient_checkpointing_enable()
        own.train()
        reported.clear()
        phase = "forward"
        output = own(input_ids=_tokens(2), decoder_input_ids=_tokens(2)).last_hidden_state
        phase = "backward"
        output.sum().backward()
        assert reported == ["forward"] * 2 + ["backward"] * 2
    with torch.no_grad():
        reported.clear()
        model(input_ids=_tokens(1), decoder_input_ids=_tokens(1))
    assert reported == ["backward"] * 2  # the name of the last phase: a forward pass alone


class Own(torch.nn.Module):
    """A user's own, whose output is what they like."""

    def __init__(self, output):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(2)])
        self.output = output

    def forward(self, inputs):
        return self.output(self.layers[0](inputs))


@pytest.mark.parametrize(
    ("output", "passes"),
    [
        (lambda own: own, 2),
        (lambda own: {"name": "x", "states": own}, 2),
        (lambda own: (None, own), 2),
        (lambda _: None, 1),
        (lambda own: own.detach(), 1),
    ],
)
def test_outputs_of_any_kind(output, passes):
    model, reported = Own(output), []
    report_stacks(model, lambda: reported.append(1))
    found = model(torch.ones(1, 2))
    tensors = found.values() if isinstance(found, dict) else found if passes > 1 else ()
    for own in tensors:
        if isinstance(own, torch.Tensor):
            own.sum().backward()
    assert len(reported) == passes


def test_gradients_are_those_of_a_model_that_reports_nothing():
    config = AutoConfig.for_model("llama", **MODELS["llama"][0])
    plain = AutoModel.from_config(config)
    reporting = copy.deepcopy(plain)
    report_stacks(reporting, lambda: None)
    for own in (plain, reporting):
        own(input_ids=_tokens(2)).last_hidden_state.square().sum().backward()
    for one, other in zip(plain.parameters(), reporting.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
