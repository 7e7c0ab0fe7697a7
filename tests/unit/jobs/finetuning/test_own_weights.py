"""The model's own weights: which are trained, by Muon, rounded, or by the entropy-weighted loss."""

import copy
from types import SimpleNamespace
from typing import Any

import peft
import pytest
import torch
import transformers

from jobs.errors import classify
from jobs.finetuning.muon import muon
from jobs.finetuning.qat import fake_quantized_linears
from jobs.finetuning.trained_weights import trained_weights
from jobs.finetuning.weighted_loss import entropy_weighted_loss
from jobs.record import Outcome
from jobs.techniques import AXES
from jobs.trial.effective_code import code
from tests.support.tiny_decoders import TOKENS, checkpointed, decoder

ARGUMENTS = SimpleNamespace(
    gradient_checkpointing_kwargs=None,
    label_smoothing_factor=0.0,
    learning_rate=0.01,
    weight_decay=0.1,
    adam_beta1=0.9,
    adam_beta2=0.99,
    adam_epsilon=1e-8,
)


def trained_names(model: Any) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def test_trained_weights_are_those_that_a_pattern_matches_anywhere():
    patterns = [r"layers\.1\.mlp", r"^lm_head"]
    model = trained_weights(decoder(), "causal-lm", ARGUMENTS, patterns=patterns)
    ends = ("gate_proj", "up_proj", "down_proj")
    layer = {f"model.layers.1.mlp.{end}.weight" for end in ends}
    assert trained_names(model) == {*layer, "lm_head.weight"}
    model(input_ids=TOKENS, labels=TOKENS).loss.backward()
    with_gradients = {name for name, item in model.named_parameters() if item.grad is not None}
    assert with_gradients == trained_names(model)


def test_frozen_feature_encoder_saves_nothing_of_the_sound():
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Wav2Vec2Config(**sizes, intermediate_size=16, conv_dim=[8] * 7)
    model = transformers.Wav2Vec2ForCTC(config).train()
    trained_weights(model, "speech-ctc", ARGUMENTS, patterns=[r"^(?!.*feature_extractor\.)"])
    features = model.wav2vec2.feature_extractor(torch.randn(1, 4000))
    assert not features.requires_grad


def test_trained_weights_below_reentrant_checkpointing_get_gradients():
    model = checkpointed(decoder(), use_reentrant=True)
    arguments = SimpleNamespace(gradient_checkpointing_kwargs={"use_reentrant": True})
    trained_weights(model, "causal-lm", arguments, patterns=[r"layers\.0\."])
    model(input_ids=TOKENS, labels=TOKENS).loss.backward()
    assert all(item.grad is not None for item in model.parameters() if item.requires_grad)


@pytest.mark.parametrize(
    ("patterns", "reason"),
    [
        (["lm_head", "no_such"], "no_such"),
        ([], "no parameter"),
        (["("], "is not a regular expression"),
    ],
)
def test_pattern_without_a_match_is_refused(patterns, reason):
    with pytest.raises(ValueError, match=reason):
        trained_weights(decoder(), "causal-lm", ARGUMENTS, patterns=patterns)


SCHEMES = [name for name in AXES["qat"].variants if name not in ("none", "nvfp4")]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_qat_rounds_every_layer_but_the_output_and_trains(scheme):
    sizes = {"hidden_size": 128, "intermediate_size": 256}
    plain, rounded = (decoder(**sizes).to(torch.bfloat16) for _ in range(2))
    model = fake_quantized_linears(rounded, "causal-lm", None, scheme=scheme)
    row = code(model)
    assert (row["fake_quantized_linears"], row["linear_layers"]) == (14, 15)
    outputs = model(input_ids=TOKENS, labels=TOKENS)
    assert not torch.equal(outputs.logits, plain(input_ids=TOKENS).logits)
    outputs.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    # The weights themselves keep their format.
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_qat_group_size_is_that_of_the_parameter():
    hook = AXES["qat"].variant("int8_int4(group_size=16)").hooks["rounding"]
    model = fake_quantized_linears(decoder(), "causal-lm", None, **hook.arguments)
    layer = model.model.layers[0].mlp.up_proj
    assert layer.weight_fake_quantizer.config.group_size == 16


def test_qat_of_layers_smaller_than_a_group_is_unsupported():
    with pytest.raises(ValueError, match="multiple of 512") as caught:
        fake_quantized_linears(decoder(), "causal-lm", None, scheme="int4", group_size=512)
    assert classify(caught.value)[0] is Outcome.UNSUPPORTED


def train(model: Any, *optimizers: torch.optim.Optimizer, steps: int = 3) -> None:
    for _ in range(steps):
        model(input_ids=TOKENS, labels=TOKENS).loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def assert_equal_weights(one: Any, other: Any) -> None:
    for left, right in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0)


def test_muon_updates_matrices_of_layers_and_adamw_the_rest():
    model, apart = decoder(), decoder()
    train(model, muon(model, ARGUMENTS, ns_steps=3))
    named = dict(apart.named_parameters())
    layers = [value for name, value in named.items() if "proj" in name]
    outside = [named["model.embed_tokens.weight"], named["lm_head.weight"]]
    norms = [value for name, value in named.items() if "norm" in name]
    assert len(layers) + len(outside) + len(norms) == len(named)
    settings = {"ns_steps": 3, "adjust_lr_fn": "match_rms_adamw"}
    matrices = torch.optim.Muon(layers, lr=0.01, weight_decay=0.1, **settings)
    groups = [{"params": outside}, {"params": norms, "weight_decay": 0.0}]
    rest = torch.optim.AdamW(
        groups, lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1, fused=True
    )
    train(apart, matrices, rest)
    assert_equal_weights(model, apart)


def test_muon_follows_the_learning_rate_of_its_groups():
    model, before = decoder(), decoder()
    optimizer = muon(model, ARGUMENTS)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    train(model, optimizer)
    assert_equal_weights(model, before)


def test_muon_of_a_loaded_checkpoint_goes_on_as_without_a_break():
    model = decoder()
    optimizer = muon(model, ARGUMENTS)
    train(model, optimizer)
    resumed = copy.deepcopy(model)
    later = muon(resumed, ARGUMENTS)
    later.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, optimizer)
    train(resumed, later)
    assert_equal_weights(model, resumed)


def test_muon_below_an_adapter_trains_its_matrices_alone():
    lora = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    optimizer = muon(peft.get_peft_model(decoder(), lora), ARGUMENTS)
    shapes = [tuple(p.shape) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(shapes) == [(2, 32), (2, 32), (32, 2), (32, 2)]


def test_muon_without_a_matrix_to_train_is_unsupported():
    model = decoder()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("norm" in name)
    with pytest.raises(ValueError, match="does not support Muon: none of the trained parameters"):
        muon(model, ARGUMENTS)


LABELS = torch.where(torch.arange(16) < 5, -100, TOKENS)


def unsure() -> Any:
    """A tiny decoder in training whose predictions are not all equally sure."""
    model = decoder()
    with torch.no_grad():
        model.lm_head.weight.mul_(40)
    return model


def expected(logits: torch.Tensor, alpha: float, k: int) -> float:
    """The sum over the counted tokens of cross entropy times entropy of the top k, to a power."""
    scores, labels = logits[:, :-1].double(), LABELS[:, 1:]
    chances = scores.topk(min(k, scores.shape[-1])).values.softmax(-1)
    entropy = -(chances * chances.log()).sum(-1)
    losses = torch.nn.functional.cross_entropy(scores.mT, labels, reduction="none")
    return float((losses * entropy**alpha).sum())


@pytest.mark.parametrize(("alpha", "k"), [(1.0, 20), (0.5, 3), (2.0, 1000)])
def test_eaft_loss_is_cross_entropy_times_entropy(alpha, k):
    model = entropy_weighted_loss(unsure(), "causal-lm", ARGUMENTS, alpha=alpha, k=k)
    outputs = model(input_ids=TOKENS, labels=LABELS)
    total = expected(outputs.logits.detach(), alpha, k)
    labels = int((LABELS[:, 1:] != -100).sum())
    assert outputs.loss.item() == pytest.approx(total / labels, rel=1e-4)
    accumulated = model(input_ids=TOKENS, labels=LABELS, num_items_in_batch=torch.tensor(100))
    assert accumulated.loss.item() == pytest.approx(total / 100, rel=1e-4)


def test_eaft_with_exponent_0_trains_as_the_plain_loss():
    plain, weighted = unsure(), entropy_weighted_loss(unsure(), "causal-lm", ARGUMENTS, alpha=0.0)
    for model in (plain, weighted):
        model(input_ids=TOKENS, labels=LABELS).loss.backward()
    for one, other in zip(plain.parameters(), weighted.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert code(weighted)["loss_implementation"] == "eaft"


def test_eaft_leaves_the_evaluation_as_it_is():
    plain, weighted = unsure(), entropy_weighted_loss(unsure(), "causal-lm", ARGUMENTS)
    losses = [model.eval()(input_ids=TOKENS, labels=LABELS).loss for model in (plain, weighted)]
    assert torch.equal(*losses)


def test_eaft_with_label_smoothing_is_refused():
    with pytest.raises(NotImplementedError, match="does not support a weighted loss"):
        entropy_weighted_loss(unsure(), "causal-lm", SimpleNamespace(label_smoothing_factor=0.1))
