"""Which parts of a model compiled regions compile."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from jobs.techniques.axes.compile import compiled_regions


class Block(torch.nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Dynamo compiles only code that is not PyTorch's own."""
        return torch.nn.functional.linear(input, self.weight).relu()


class Stack(torch.nn.Module):
    """Blocks behind each other, and a loss function as transformers has it."""

    def __init__(self, blocks: list[torch.nn.Module]) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(blocks)
        self.loss_function: Any = plain_loss


def plain_loss(logits: torch.Tensor) -> torch.Tensor:
    return logits.sum()


def compiled(model: Stack, task: Any = "causal-lm") -> Stack:
    """The model with compiled regions, by a backend that is not called here."""
    compiled_regions(model, task, None, backend="aot_eager")
    return model


def is_compiled(module: torch.nn.Module) -> bool:
    return module._compiled_call_impl is not None


def test_every_block_and_the_loss_of_tokens_is_compiled_and_the_model_is_not():
    model = compiled(Stack([Block(2, 2), Block(2, 2)]))
    assert all(map(is_compiled, model.blocks))
    assert not is_compiled(model)
    assert model.loss_function._torchdynamo_orig_callable is plain_loss
    # A loss without a vocabulary stays eager.
    assert compiled(Stack([Block(2, 2)]), "text-classification").loss_function is plain_loss


def test_loss_with_a_region_is_compiled_in_its_region_alone():
    model = Stack([Block(2, 2)])
    region = SimpleNamespace(function=plain_loss)

    def loss(logits: torch.Tensor) -> Any:
        return region.function(logits)

    loss.region = region
    model.loss_function = loss
    compiled(model)
    assert model.loss_function is loss
    assert region.function._torchdynamo_orig_callable is plain_loss


def test_blocks_that_hold_blocks_are_left_to_those_inside():
    outer = Stack([Block(2, 2)])
    compiled(Stack([outer]))
    assert not is_compiled(outer)
    assert is_compiled(outer.blocks[0])


def test_block_whose_parts_are_a_list_of_several_classes_is_compiled():
    """A block of T5 lists its attention and its feed-forward part."""
    block = Stack([Block(2, 2), torch.nn.ReLU()])
    model = compiled(Stack([block, Stack([Block(2, 2), torch.nn.ReLU()])]))
    assert all(map(is_compiled, model.blocks))
    assert not any(map(is_compiled, block.blocks))


def _t5(layers: int) -> Any:
    """A tiny T5, as the Trainer leaves it: without a cache in the model's own configuration."""
    config = transformers.T5Config(
        vocab_size=50,
        d_model=8,
        d_kv=4,
        d_ff=8,
        num_layers=layers,
        num_heads=2,
        decoder_start_token_id=0,
        use_cache=True,
    )
    model = transformers.T5ForConditionalGeneration(config)
    model.config.use_cache = False
    return model


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_blocks_of_a_t5_share_their_code_however_many_they_are():
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    model = _t5(5)
    compiled_regions(model, "seq2seq-lm", None, backend="eager")
    tokens = torch.ones(2, 4, dtype=torch.long)
    output = model(input_ids=tokens, labels=tokens)
    assert output.past_key_values is None
    # One block of encoder and decoder each has relative positions, and one has none.
    assert counters["stats"]["unique_graphs"] <= 5


def test_regions_keep_a_cache_that_the_arguments_ask_for():
    model = _t5(2)
    compiled_regions(model, "seq2seq-lm", SimpleNamespace(use_cache=True), backend="eager")
    assert model.decoder.config.use_cache


def test_tuned_regions_are_compiled_with_tuned_kernels(monkeypatch):
    asked = []

    def fake_compile(code: Any, **options: Any) -> Any:
        asked.append(options)
        return code

    monkeypatch.setattr(torch, "compile", fake_compile)
    compiled_regions(Stack([Block(2, 2)]), "causal-lm", None, backend="inductor", tuned=True)
    compiled_regions(Stack([Block(2, 2)]), "causal-lm", None, backend="inductor")
    block, loss, *plain = [options.get("options") for options in asked]
    assert block == loss == {"max_autotune_pointwise": True}
    assert plain == [None, None]


@pytest.mark.parametrize("blocks", [[], [Block(2, 2), torch.nn.ReLU()]])
def test_model_without_repeated_blocks_is_not_supported(blocks):
    with pytest.raises(NotImplementedError, match="no repeated blocks"):
        compiled(Stack(blocks))


@pytest.mark.parametrize(("any_batch", "graphs"), [(False, 2), (True, 1)])
def test_any_batch_shares_one_graph_among_micro_batches(any_batch, graphs):
    """Each micro-batch is a trial of its own process, which starts without Dynamo's state."""
    made = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        # Sizes that are not known to the graph are inputs of it.
        made.append(graph.print_readable(print_output=False))
        return graph.forward

    for batch in (4, 6):
        torch._dynamo.reset()
        model = Stack([Block(2, 2)])
        compiled_regions(model, "text-classification", None, backend=backend, any_batch=any_batch)
        assert model.blocks[0](torch.ones(batch, 2)).shape == (batch, 2)
    assert len(made) == 2
    assert len(set(made)) == graphs


def test_blocks_of_a_vision_tower_are_not_compiled():
    language_model = Stack([Block(2, 2)])
    model = Stack([Block(2, 2)])  # the tower's
    model.language_model = language_model
    model.get_decoder = lambda: language_model  # as transformers names it
    compiled(model, "image-text-to-text")
    assert all(map(is_compiled, language_model.blocks))
    assert not any(map(is_compiled, model.blocks))
    assert model.loss_function._torchdynamo_orig_callable is plain_loss
