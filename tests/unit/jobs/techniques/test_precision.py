"""Linear layers in FP8, converted on the CPU; only a GPU can multiply them."""

import pytest
import torch

from jobs.errors import classify
from jobs.record import Outcome
from jobs.techniques.axes.precision import float8_linears
from jobs.trial.effective_code import code
from tests.support.tiny_decoders import decoder


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_float8_linears_of_a_decoder_are_all_but_the_output_layer(recipe):
    converted = float8_linears(decoder(), "causal-lm", None, recipe=recipe)
    row = code(converted)
    assert (row["float8_linears"], row["linear_layers"]) == (14, 15)
    assert type(converted.lm_head) is torch.nn.Linear


def test_float8_linears_leaves_layers_that_tensor_cores_do_not_take():
    narrow = decoder(hidden_size=40)
    with pytest.raises(ValueError, match="does not support FP8") as caught:
        float8_linears(narrow, "causal-lm", None, recipe="rowwise")
    assert classify(caught.value)[0] is Outcome.UNSUPPORTED
