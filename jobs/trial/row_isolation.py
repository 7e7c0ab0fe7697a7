"""Whether rows that stand in one sequence attend to each other: then they train something else."""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from accelerate.utils import send_to_device

from jobs.errors import UnsupportedError
from jobs.loops.contract import Trained
from jobs.spec import TrialSpec
from jobs.techniques.axes.batching import one_sequence, takes_row_lengths


def check_rows_are_separate(trained: Trained, spec: TrialSpec) -> None:
    """Raises UnsupportedError if a row's logits depend on the row before it in its sequence."""
    batching = spec.settings.hooks.get("batching")
    if batching is None or batching.name == "padded_to_multiple":
        return  # every row has a line of its batch to itself
    model: Any = trained.model
    if spec.settings.deepspeed is None:
        # The module itself, because compiled code would be compiled again for this shape.
        model = trained.accelerator.unwrap_model(trained.model, keep_torch_compile=False)
    device = trained.accelerator.device
    # In 32 bits a smaller leak shows, but kernels of variable length compute in 16 bits only.
    attention = str(spec.settings.model_kwargs.get("attn_implementation", ""))
    needs_16_bits = takes_row_lengths(attention)
    has_16_bits = needs_16_bits or model.get_input_embeddings().weight.element_size() < 4
    # The largest change that rounding explains, as a share of the largest logit. Only experts round
    # differently, because another row before changes their input shapes.
    explained = 5e-3 if has_16_bits else 1e-4
    with trained.accelerator.autocast() if needs_16_bits else contextlib.nullcontext():
        share = change_by_another_row(model, device, functools.partial(_joined, attention))
        if share > explained:
            # A quantizer whose scales span a batch, as those of 8 bits, lets rows round each other
            # in a padded batch, too. That is no attention.
            explained += 2 * change_by_another_row(
                model, device, lambda rows: {"input_ids": torch.stack([*rows])}
            )
    if share > explained:
        raise UnsupportedError(
            "rows_stay_separate",
            "this model lets rows that stand in one sequence attend to each other: changing a row "
            f"changed the logits of the next one by {100 * share:.2g} %",
        )


def _joined(attention: str, rows: Sequence[torch.Tensor]) -> dict[str, Any]:
    positions = torch.arange(len(rows[0]))
    parts = [{"input_ids": ids, "labels": ids, "position_ids": positions} for ids in rows]
    inputs = one_sequence(parts, attention)
    inputs.pop("labels", None)  # a loss is not needed
    return inputs


def change_by_another_row(
    model: Any, device: torch.device, batch: Callable[[Sequence[torch.Tensor]], dict[str, Any]]
) -> float:
    """How much a row's logits change with the row before it in ``batch``, relative to the largest.
    ``batch`` makes the inputs of rows of equal length."""
    vocabulary = int(model.get_input_embeddings().num_embeddings)
    # Steps of three different primes give three rows that differ in nearly every token.
    first, other, second = (torch.arange(16) * step % vocabulary for step in (3, 5, 7))
    was_training = model.training
    model.eval()
    logits = []
    try:
        for row_before in (first, other):
            with torch.no_grad():
                output = model(**send_to_device(batch((row_before, second)), device))
            logits.append(output.logits.flatten(0, 1)[len(second) :].float())
    finally:
        model.train(was_training)
    largest = float(logits[0].abs().max())
    difference = float((logits[0] - logits[1]).abs().max())
    # A row that is not finite says nothing about its neighbours.
    return difference / largest if largest > 0 else 0.0
