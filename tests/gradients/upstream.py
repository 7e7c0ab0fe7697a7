"""Wrong gradients of transformers 5.23: ``python -m tests.gradients.upstream``.

Each line is an error relative to the norm of the right gradient.
"""

import tempfile
from typing import Any

import torch
import transformers

from tests.support.tiny_decoders import LLAMA, decoder

T5 = {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 2, "d_kv": 16, "vocab_size": 128}


def accumulated(config: Any, auto_class: Any, rows: list[dict[str, Any]]) -> float:
    """The error of two micro-batches of two rows, compared with one of four."""
    found: list[torch.Tensor] = []

    class Kept(transformers.TrainerCallback):
        def on_pre_optimizer_step(self, *args: Any, model: Any, **kwargs: Any) -> None:
            found.append(torch.cat([own.grad.flatten() for own in model.parameters()]))

    for size, passes in ((4, 1), (2, 2)):
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                folder, max_steps=1, max_grad_norm=0, report_to="none", use_cpu=True,
                per_device_train_batch_size=size, gradient_accumulation_steps=passes,
                train_sampling_strategy="sequential",
            )  # fmt: skip
            model = auto_class.from_config(config)
            transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[Kept()]).train()
    return float((found[1] - found[0]).norm() / found[0].norm())


def main() -> None:
    ids = torch.randint(3, 128, (4, 16), generator=torch.Generator().manual_seed(0))
    labels = [
        own.masked_fill(torch.arange(16) >= count, -100)
        for own, count in zip(ids, (2, 2, 14, 16), strict=True)
    ]
    rows = [{"input_ids": own, "labels": label} for own, label in zip(ids, labels, strict=True)]
    t5 = transformers.AutoConfig.for_model("t5", **T5, dropout_rate=0.0, decoder_start_token_id=0)
    error = accumulated(t5, transformers.AutoModelForSeq2SeqLM, rows)
    print(f"T5, micro-batches of 4 and of 30 labels: {error:.0%}")
    experts = {**LLAMA, "output_router_logits": True, "router_aux_loss_coef": 0.1}
    mixtral = transformers.AutoConfig.for_model("mixtral", **experts)
    error = accumulated(
        mixtral,
        transformers.AutoModelForCausalLM,
        [{"input_ids": own, "labels": own} for own in ids[[0, 1, 0, 1]]],
    )
    print(f"Mixtral with a load-balancing loss, the same micro-batch twice: {error:.2%}")
    model, packed, positions = decoder(), ids[:2].reshape(1, -1), torch.arange(16).repeat(2)[None]
    starts = packed.masked_fill(positions == 0, -100)
    weight = model.model.layers[0].self_attn.q_proj.weight
    apart = torch.autograd.grad(model(ids[:2], labels=starts.reshape(2, -1)).loss, weight)[0]
    output = model(packed, position_ids=positions, labels=starts)  # use_cache is True by default
    error = float((torch.autograd.grad(output.loss, weight)[0] - apart).norm() / apart.norm())
    print(f"Llama called with packed rows and a cache: {error:.0%}")


if __name__ == "__main__":
    main()
