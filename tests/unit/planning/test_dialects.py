"""Files of other trainers become configurations of ours: what is taken, and what is said of it."""

import json
from pathlib import Path

import pytest
import yaml

from jobs.techniques import AXES
from orchestrator import init
from orchestrator.planning.config import load_config
from orchestrator.planning.dialects.registry import UnreadableFileError, dialects
from orchestrator.planning.dialects.to_ours.chosen_axes import axes_of
from orchestrator.planning.dialects.to_ours.facts import ours
from orchestrator.planning.dialects.to_ours.model_shapes import shape_of
from orchestrator.planning.dialects.trainers.tables import Verdict
from orchestrator.planning.dialects.translate import translated
from orchestrator.planning.dialects.write_back.changed_file import changed_file
from orchestrator.planning.plan import plan

AXOLOTL = """
base_model: meta-llama/Llama-3.2-1B-Instruct
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_alpha: 16
lora_target_linear: true
sequence_len: 2048
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: paged_adamw_8bit
learning_rate: 2e-4
bf16: auto
tf32: true
gradient_checkpointing: true
gradient_checkpointing_kwargs: {use_reentrant: false}
plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]
liger_rms_norm: true
flash_attention: true
deepspeed: deepspeed_configs/zero2.json
wandb_project:
"""
FACTORY = """
model_name_or_path: Qwen/Qwen3-4B-Instruct-2507
stage: sft
finetuning_type: full
cutoff_len: 1024
per_device_train_batch_size: 1
bf16: true
flash_attn: fa2
enable_liger_kernel: true
"""
SWIFT = """#!/bin/bash
nproc_per_node=2
CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=$nproc_per_node swift sft \\
    --model Qwen/Qwen2.5-7B-Instruct --train_type lora --quant_bits 4 \\
    --target_modules q_proj v_proj --torch_dtype bfloat16 --max_length 2048 \\
    --gradient_accumulation_steps $(expr 16 / $nproc_per_node) --attn_impl flash_attn
"""
TRL = """accelerate launch --num_processes 1 trl/scripts/dpo.py --model_name_or_path gpt2 \\
    --beta=0.2 --per_device_train_batch_size 4 --no_such_option 3 --optim sgd --bf16 false
"""


def read(folder: Path, text: str, name: str = "mine.yaml", *others: Path, **options):
    (folder / name).write_text(text)
    return translated([folder / name, *others], **options)


def changed_by(text: str, change: str) -> str:
    """A YAML text with other values of some keys."""
    return yaml.safe_dump({**yaml.safe_load(text), **yaml.safe_load(change)})


def became(result, key: str) -> str:
    return next(str(entry.verdict) for entry in result.entries if entry.key == key)


def test_a_qlora_of_axolotl(tmp_path):
    result = read(tmp_path, AXOLOTL)
    assert result.document["axes"] == {
        "micro_batch": 2,
        "accumulation": 4,
        "precision": "bf16_tf32",
        "optimizer": "paged_adamw_8bit",
        "activations": "checkpoint",
        "attention": "flash_attention_2",
        "kernels": {"liger": {"rope": False, "rms_norm": True, "layer_norm": False, "mlp": False}},
        "loss": "cce",
        "adapter": {"lora": {"r": 32, "lora_alpha": 16, "target_modules": "all-linear"}},
        "base": {"bnb_4bit": {"upcast": False}},
        "offload": "zero2",
    }
    assert result.document["data"]["synthetic"]["sequence_length"] == 2048
    assert result.document["model"]["config"]["tie_word_embeddings"] is True
    assert became(result, "sample_packing") == "nearest"
    assert became(result, "wandb_project") == "left aside"


def test_full_training_has_16_bit_weights_in_axolotl_and_32_bit_ones_in_llama_factory(tmp_path):
    full = AXOLOTL.replace("adapter: qlora", "adapter:").replace("load_in_4bit: true", "")
    result = read(tmp_path, full)
    assert result.document["axes"]["precision"] == "bf16_weights_tf32"
    assert {"adapter", "base"}.isdisjoint(result.document["axes"])
    assert became(result, "lora_r") == "left aside"
    factory = read(tmp_path, FACTORY).document["axes"]
    assert (factory["precision"], factory["activations"]) == ("bf16", "checkpoint_reentrant")
    assert factory["attention"] == "flash_attention_2"
    assert became(read(tmp_path, FACTORY), "checkpointing") == "default"
    pure = read(tmp_path, FACTORY + "pure_bf16: true\ndisable_gradient_checkpointing: true\n")
    assert pure.document["axes"]["precision"] == "bf16_weights"
    assert "activations" not in pure.document["axes"]
    frozen = FACTORY.replace("full", "freeze") + "freeze_trainable_layers: 2\n"
    assert read(tmp_path, frozen).document["axes"]["trainable"] == {
        "matching": {"patterns": [r"layers\.(34|35)\."]}
    }


def test_what_axolotl_decides_from_several_keys(tmp_path):
    def axes(change: str) -> dict[str, object]:
        return dict(read(tmp_path, changed_by(AXOLOTL, change)).document["axes"])

    half = axes("bf16: auto\nfp16: true\n")
    assert (half["precision"], half["base"]) == (
        "fp16",
        {"bnb_4bit": {"upcast": False, "dtype": "float16"}},
    )
    both = axes("bf16: true\nfloat16: true\n")
    assert (both["precision"], both["base"]) == ("bf16_tf32", {"bnb_4bit": {"upcast": False}})
    plain = axes("bf16: false\nload_in_4bit: false\nadapter: lora\n")
    assert plain["precision"] == "tf32"
    assert "base" not in plain
    assert axes("activation_offloading: true\n")["activations"] == "offload"
    full = axes("activation_offloading: true\nadapter:\nload_in_4bit: false\n")
    assert full["activations"] == "checkpoint_offload_streams"
    offloaded = axes("fsdp_config: {offload_params: true}\ndeepspeed:\n")
    assert "offload" not in offloaded  # a quantized base goes with no ZeRO-3


def test_the_second_format_of_llama_factory(tmp_path):
    text = """
model: Qwen/Qwen3-0.6B
model_class: llm
peft_config: {name: lora, r: 16, target_modules: all}
quant_config: {name: bnb, quantization_bit: 4}
dist_config: {name: fsdp2}
micro_batch_size: 2
cutoff_len: 512
"""
    result = read(tmp_path, text)
    assert result.dialects == ("LLaMA-Factory v1",)
    axes = result.document["axes"]
    assert axes["adapter"] == {"lora": {"r": 16, "target_modules": "all-linear"}}
    assert (axes["micro_batch"], axes["base"]) == (2, {"bnb_4bit": {"upcast": False}})


def test_a_script_of_ms_swift_is_read_and_not_run(tmp_path):
    result = read(tmp_path, SWIFT, "train.sh")
    axes = result.document["axes"]
    assert result.dialects == ("ms-swift",)
    assert axes["accumulation"] == 8
    assert axes["adapter"]["lora"]["target_modules"] == ["q_proj", "v_proj"]
    assert axes["base"] == {"bnb_4bit": {"upcast": False}}


def test_a_script_with_a_list_of_options_and_a_quotient_of_variables(tmp_path):
    script = """set -e
MODEL=${MODEL:-gpt2}
export SIZE=4
STEPS=$((24 / SIZE))
OPTIONS=(
  --model_name_or_path "$MODEL"  # small
  --bf16 True
)
torchrun --nproc_per_node=2 train.py "${OPTIONS[@]}" \\
  --per_device_train_batch_size $SIZE --gradient_accumulation_steps $STEPS --max_length 96
"""
    result = read(tmp_path, script, "train.sh")
    axes = result.document["axes"]
    assert (axes["micro_batch"], axes["accumulation"], axes["precision"]) == (4, 6, "bf16")
    assert result.document["data"]["synthetic"]["sequence_length"] == 96


def test_python_code_is_answered_with_what_to_write(tmp_path):
    with pytest.raises(UnreadableFileError, match=r"not run here; .*to_json_string"):
        read(tmp_path, "args = TrainingArguments(bf16=True)\n", "train.py")


def test_a_command_line_of_trl(tmp_path):
    result = read(tmp_path, TRL, "train.txt")
    axes = result.document["axes"]
    assert axes["loop"] == {"trl_dpo": {"beta": 0.2}}
    assert (axes["precision"], axes["optimizer"], axes["micro_batch"]) == ("fp32", "sgd", 4)
    assert became(result, "no_such_option") == "unknown"


@pytest.mark.parametrize(
    ("launcher", "trainer"),
    [
        ("accelerate launch --num_processes 4 --multi_gpu trl/scripts/sft.py", "TRL"),
        ("torchrun --nproc_per_node=4 -m trl.scripts.sft", "TRL"),
        ("NPROC_PER_NODE=4 swift sft", "ms-swift"),
        ("deepspeed --num_gpus 4 train.py", "TrainingArguments"),
        ("python -m torch.distributed.run --nproc-per-node 4 train.py", "TrainingArguments"),
    ],
)
def test_the_launcher_of_a_command_says_how_many_processes_train(tmp_path, launcher, trainer):
    command = f"{launcher} --per_device_train_batch_size 2\n"
    result = read(tmp_path, command, "train.sh", model="gpt2")
    names = ["accelerate"] if launcher.startswith("accelerate") else []
    assert result.dialects == (*names, trainer)
    (processes,) = [own for own in result.entries if "proc" in own.key.lower() or "gpus" in own.key]
    assert (processes.value, processes.verdict) == (4, Verdict.NEAREST)
    assert result.document["axes"]["micro_batch"] == 2


@pytest.mark.parametrize(
    ("command", "trainer", "expected"),
    [
        ("tools/tune.py --finetuning_type lora --lora_rank 4 --quantization_bit 8 --cutoff_len 64",
        "LLaMA-Factory",
        {"adapter": {"lora": {"r": 4, "target_modules": "all-linear"}},
        "base": {"bnb_8bit": {"upcast": False}}}),
        ("run.py --bf16 --torch_dtype bfloat16 --use_flash_attn --lora_rank 4", "TrainingArguments",
        {"adapter": {"lora": {"r": 4}}, "base": "16bit", "attention": "flash_attention_2"}),
        ("run.py --bf16 --dtype bfloat16", "TrainingArguments", {"precision": "bf16_weights"}),
        ("llm_sft.py --sft_type lora --lora_rank 4 --batch_size 3 --lora_target_modules ALL",
        "ms-swift", {"micro_batch": 3, "adapter":
        {"lora": {"r": 4, "lora_alpha": 32, "target_modules": "all-linear"}}}),
    ],
)  # fmt: skip
def test_a_script_of_any_name_is_known_by_its_keys(tmp_path, command, trainer, expected):
    result = read(tmp_path, f"python {command}\n", "train.sh", model="gpt2")
    assert result.dialects == (trainer,)
    assert expected.items() <= result.document["axes"].items()


@pytest.mark.parametrize(
    ("name", "text", "loop"),
    [
        ("a.yaml", "{max_length: 64, beta: 0.3}", {"trl_dpo": {"beta": 0.3}}),
        ("b.yaml", "{dataset_mixer: {x: 1}, ref_model: gpt2}", "trl_dpo"),
        ("c.yaml", "{dataset_mixer: {x: 1}}", "trl_sft"),
        ("d.sh", "trl sft --beta 0.3", "trl_sft"),
    ],
)
def test_keys_of_pairs_alone_say_that_the_training_is_one_on_pairs(tmp_path, name, text, loop):
    assert read(tmp_path, text, name, model="gpt2").document["axes"]["loop"] == loop


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("lora_magic: 3", "it is of an adapter"),
        ("weight_quant_scheme: w8", "of few bits"),
        ("num_generations: 4", "generates answers"),
        ("reward_funcs: [x]", "generates answers"),
        ("load_in_8bit: true", "only beside an adapter"),
        ("vision_tower: clip", "of its own code"),
    ],
)
def test_a_key_whose_loss_makes_another_training_is_refused(line, why, tmp_path):
    result = read(tmp_path, f"learning_rate: 1e-4\n{line}\n", model="gpt2")
    assert any(why in own.why for own in result.obstacles)
    key = line.partition(":")[0]
    assert not read(tmp_path, f"learning_rate: 1e-4\n{key}: false\n", model="gpt2").obstacles


def test_a_key_that_a_model_lacks_is_not_taken_for_a_misspelt_one(tmp_path):
    shape = tmp_path / "config.json"
    shape.write_text('{"model_type": "bert", "hidden_sizes": 1, "pooler_kind": "first"}')
    whys = [own.why for own in translated([shape]).entries if own.verdict is Verdict.UNKNOWN]
    assert [why.endswith("in silence") for why in whys] == [True, True]


@pytest.mark.parametrize(
    ("config", "text", "why"),
    [
        ({"model_type": "of_nobody", "template": "x"}, "", 'no architecture "of_nobody"'),
        ({"model_type": "llava"}, "python sft_vlm.py --bf16", "texts only"),
        ({"model_type": "llama"}, "python a.py --bf16 --max_prompt_length 8", "no key says"),
        ({"model_type": "llama"}, "python dpo.py --deepspeed zero1.json", "Without an adapter"),
        ({"model_type": "llama"}, "python dpo.py --deepspeed zero1.json --use_peft", ""),
    ],
)
def test_what_a_plan_would_rule_out_is_refused_with_its_reason(config, text, why, tmp_path):
    shape = tmp_path / "config.json"
    shape.write_text(json.dumps(config))
    (tmp_path / "a.sh").write_text(text)
    files = [tmp_path / "a.sh", shape] if text else [shape]
    assert [why in own.why for own in translated(files).obstacles] == ([True] if why else [])


def test_files_of_one_training_are_read_together(tmp_path):
    zero = tmp_path / "zero.json"
    zero.write_text(json.dumps({"zero_optimization": {"stage": 2}, "train_batch_size": 64}))
    launch = tmp_path / "launch.yaml"
    launch.write_text("{compute_environment: LOCAL_MACHINE, mixed_precision: bf16}")
    arguments = json.dumps({"per_device_train_batch_size": 4, "optim": "adafactor"})
    result = read(tmp_path, arguments, "args.json", zero, launch, model="bert-large-uncased")
    assert result.document["model"]["task"] == "sequence-classification"
    assert result.document["deepspeed"]["train_batch_size"] == "auto"
    assert result.document["axes"] == {
        "micro_batch": 4,
        "precision": "bf16",
        "optimizer": "adafactor",
    }


def written(folder: Path, *files: Path, **options) -> tuple[dict, list[str]]:
    """What a plan's trial has after ``init --from``, and the keys that are not taken."""
    target = folder / "ours.yaml"
    given = [text for name, value in options.items() for text in (f"--{name}", value)]
    init.main(["--from", *map(str, files), "--output", str(target), "--force", *given])
    (trial,) = plan(load_config(target)).trials
    result = translated(files, model=options.get("model"))
    return dict(trial.choices), [own.key for own in result.entries if own.verdict == "unknown"]


def test_what_a_sweep_would_refuse_of_the_users_own_keys_is_not_taken(tmp_path):
    shape = tmp_path / "config.json"
    quantized = {"quantization_config": {"load_in_8bit": True}, "_attn_implementation": "eager"}
    layers = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    shape.write_text(json.dumps({"model_type": "llama", **layers, **quantized}))
    arguments = tmp_path / "args.yaml"
    arguments.write_text(
        "{optim: apollo_adamw, optim_args: rank=2, optim_target_modules: [mlp], bf16: true}"
    )
    choices, refused = written(tmp_path, arguments, shape)
    assert (choices["optimizer"], choices["precision"]) == ("apollo_adamw", "bf16")
    assert refused == [
        "optim_args",
        "optim_target_modules",
        "model.config.quantization_config",
        "model.config._attn_implementation",
    ]
    tuner = tmp_path / "tuner.yaml"
    tuner.write_text("{model_name_or_path: x, use_peft: true, lora_r: 4, dtype: bfloat16}")
    assert written(tmp_path, tuner, shape)[0]["base"] == "bnb_8bit(upcast=false)"


def test_a_deepspeed_file_alone_says_batch_and_precision_and_goes_before_optim(tmp_path):
    zero = tmp_path / "zero.json"
    batch = {"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 5}
    optimizer = {"type": "AdamW", "params": {"lr": 1e-5}}
    zero.write_text(
        json.dumps({"zero_optimization": {"stage": 1}, "fp16": {"enabled": True}, **batch})
    )
    choices, _ = written(tmp_path, zero, model="gpt2")
    names = ("micro_batch", "accumulation", "precision")
    assert [choices[name] for name in names] == [3, 5, "fp16"]
    script = tmp_path / "train.sh"
    script.write_text(
        "export SIZE=2\ndeepspeed --num_gpus 1 train.py --model_name_or_path gpt2 --bf16 \\\n"
        "  --per_device_train_batch_size $SIZE --model_max_length 96 --optim adamw_torch \\\n"
        "  --max_steps 70 --deepspeed zero.json\n"
    )
    zero.write_text(
        json.dumps({"zero_optimization": {"stage": 1}, "optimizer": optimizer, **batch})
    )
    choices, refused = written(tmp_path, script)
    assert [choices[name] for name in names] == [2, 5, "bf16"]
    assert (choices["optimizer"], refused) == ("custom", [])
    document = translated([script]).document
    assert document["data"]["synthetic"]["sequence_length"] == 96
    assert document["training_arguments"] == {"max_steps": 70}


def test_an_accelerate_file_says_regional_compilation_and_how_many_gpus(tmp_path):
    launch = {
        "compute_environment": "LOCAL_MACHINE",
        "num_processes": 4,
        "dynamo_config": {"dynamo_backend": "INDUCTOR", "dynamo_use_regional_compilation": True},
    }
    file = tmp_path / "launch.yaml"
    file.write_text(yaml.safe_dump(launch))
    result = translated([file], model="gpt2")
    assert result.document["axes"]["compile"] == "inductor_regional"
    assert became(result, "num_processes") == "nearest"


def test_images_have_no_guessed_length(tmp_path):
    shape = tmp_path / "config.json"
    shape.write_text('{"model_type": "vit", "image_size": 32, "hidden_size": 96}')
    result = translated([shape])
    assert result.document["data"] == {"synthetic": {"samples": 64}}
    assert not any("a guess" in entry.why for entry in result.entries)


@pytest.mark.parametrize("given", ["", "block_size: 64\n"])
def test_a_length_that_no_file_names_is_a_guess_that_is_said(given, tmp_path):
    text = f"model_name_or_path: gpt2\nper_device_train_batch_size: 4\nbf16: true\n{given}"
    result = read(tmp_path, text)
    assert result.document["data"]["synthetic"]["sequence_length"] == (64 if given else 512)
    assert any("a guess" in entry.why for entry in result.entries) is not bool(given)


@pytest.mark.parametrize("has_weights", [True, False])
def test_folder_with_weights_stays_the_model(has_weights, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama", "hidden_size": 64}')
    if has_weights:
        (folder / "model.safetensors").touch()
    result = read(tmp_path, "base_model: mine\nsequence_len: 64\n")
    model = result.document["model"]
    assert model.get("name_or_path") == (str(folder) if has_weights else None)
    assert model.get("architecture") == (None if has_weights else "llama")
    taken = {entry.key: entry.taken for entry in result.entries}
    assert taken["base_model"] == (str(folder) if has_weights else "llama")


def test_a_local_data_set_is_used(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    result = read(tmp_path, AXOLOTL + "datasets: [{path: rows.jsonl, type: completion}]\n")
    assert result.document["data"]["file"]["path"] == str(tmp_path / "rows.jsonl")
    assert result.document["axes"]["batching"] == "packed_whole_rows"
    ours = {entry.key: entry.ours for entry in result.entries}
    assert ours["sequence_len"] == "data.file.max_length"
    assert ours["deepspeed"] == "axes.offload"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("rl: grpo\n", "generates answers"),
        ("context_parallel_size: 2\n", "among GPUs"),
        ("base_model: me/unheard-of\n", "--model-config"),
    ],
)
def test_what_no_trial_can_do_is_refused_with_its_reason(change, word, tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text(changed_by(AXOLOTL, change))
    target = tmp_path / "ours.yaml"
    assert init.main(["--from", str(tmp_path / "mine.yaml"), "--output", str(target)]) == 2
    assert word in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize(
    ("axis", "value", "text"),
    [
        ("base", "16bit_fp16", "base_model: meta-llama/Llama-3.2-1B\nadapter: lora\n"
        "bf16: false\nfp16: true\n"),
        ("optimizer", "galore_adamw", f"{FACTORY}use_galore: true\noptim: adamw_torch\n"),
        ("trainable", {"matching": {"patterns": [r"layers\.(35)\."]}},
        FACTORY.replace("type: full", "type: freeze") + "freeze_trainable_layers: 1\n"),
    ],
)  # fmt: skip
def test_keys_that_contradict_each_other_have_one_answer_in_any_order(axis, value, text, tmp_path):
    lines = text.strip().splitlines()
    for ordered in (lines, reversed(lines)):
        assert read(tmp_path, "\n".join(ordered)).document["axes"][axis] == value


@pytest.mark.parametrize(
    ("line", "verdict", "why"),
    [
        ("bf16: full", "unknown", "no counterpart of full"),
        ("experts_implementation: megablocks", "unknown", "no counterpart of megablocks"),
        ("context_parallel_size: 1", "left aside", "off"),
        ("context_parallel_size: 2", "not possible", "sharding shares states"),
        ("load_in_8bit: false", "left aside", "off"),
        ("lr_scheduler: rex", "left aside", "changes the training"),
        ("processor_type: Qwen2AudioProcessor", "not possible", "with sound"),
    ],
)
def test_a_value_without_a_row_is_no_switch_that_is_off(line, verdict, why, tmp_path):
    key = line.partition(":")[0]
    text = "\n".join(own for own in AXOLOTL.splitlines() if not own.startswith(f"{key}:"))
    entry = next(one for one in read(tmp_path, f"{text}\n{line}\n").entries if one.key == key)
    assert (entry.verdict, why in entry.why) == (verdict, True)


@pytest.mark.parametrize("text", [AXOLOTL, FACTORY, SWIFT, TRL])
def test_what_is_written_is_planned(text, tmp_path, capsys):
    (tmp_path / "mine").write_text(text)
    target = tmp_path / "ours.yaml"
    assert init.main(["--from", str(tmp_path / "mine"), "--output", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] == [str(target)]
    assert target.read_text().startswith("# from a configuration of ")
    assert len(plan(load_config(target)).trials) == 1


@pytest.mark.parametrize("dialect", dialects(), ids=lambda one: one.name)
def test_every_row_states_facts_that_the_axes_know(dialect):
    for rule in dialect.rows.values():
        for value in [*rule.values.values(), *(near for near, _ in rule.nearest.values())]:
            facts = {rule.fact: value} if rule.fact else value
            for fact in facts:
                assert ours(fact)
            for axis, chosen in axes_of(facts).items():
                if isinstance(chosen, str):
                    AXES[axis].variant(chosen)
        if rule.fact:
            assert ours(rule.fact)


def test_an_unknown_model_has_its_nearest_shape_or_the_given_one(tmp_path):
    other = AXOLOTL.replace("meta-llama/Llama-3.2-1B-Instruct", "google/gemma-9-10b")
    result = read(tmp_path, other)
    assert became(result, "base_model") == "nearest"
    assert "gemma-2-9b" in result.entries[0].why
    shape = tmp_path / "config.json"
    shape.write_text(json.dumps({"model_type": "llama", "hidden_size": 64}))
    unsized = read(tmp_path, AXOLOTL.replace("meta-llama/Llama-3.2-1B-Instruct", "me/MOSS-VL-X"))
    assert unsized.document["model"]["architecture"] == "qwen3_vl"
    given = read(tmp_path, other, model_config=shape).document["model"]
    assert yaml.safe_load(yaml.safe_dump(given))["config"] == {"hidden_size": 64}


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("lmsys/vicuna-13b-v1.3_lr_2e-4", "llama-2-13b"),
        ("Nexusflow/Starling-LM-7B-beta", "mistral-7b"),
        ("x/deepseek-r1-distill-llama-70b", "llama-3-70b"),
        ("x/llama2-chinese-70b", "llama-2-70b"),
        ("x/deepseek-r1-distilled-qwen-14b", "qwen2.5-14b"),
        ("internlm/internlm2-chat-20b", "internlm2-20b"),
        ("saves/Qwen3-4B/lora/checkpoint-7", "qwen3-4b"),
        ("me/mine-13b-chat", "llama-2-13b"),
        ("/data/vision/mine-13b", "llama-2-13b"),
        ("/data/vision/bert-base-uncased", "bert-base"),
        ("/data/Qwen2.5-VL-7B/full/sft", "qwen2.5-vl-7b"),
        ("facebook/opt-2.7b", "opt-2.7b"),
        ("openai/gpt-oss-mine-20b", "gpt-oss-20b"),
        ("xlm-roberta-large-finetuned", "xlm-roberta-large"),
        ("facebook/opt-66b", None),
        ("me/mine-3x9b", None),
        ("me/flan-t5-9b", "t5-v1_1-xxl"),
        ("bigscience/bloomz-7b1", "bloom-7b1"),
        ("databricks/dolly-v2-3b", "pythia-2.8b"),
        ("google/codegemma-7b", "gemma-7b"),
        ("google/medgemma-4b-it", "gemma-3-4b"),
        ("ibm-granite/granite-3.3-8b-instruct", "granite-3.1-8b"),
        ("ibm-granite/granite-4.0-3b", "granite-4.0-h-micro"),
        ("x/deepseek-r1-0528-qwen3-8b", "qwen3-8b"),
        ("hfl/chinese-llama-2-7b", "llama-2-7b"),
        ("tencent/Hunyuan-MT-7B", "llama-7b"),
        ("allenai/olmo3-32b", "olmo-3-32b"),
        ("/hub/models--Qwen--Qwen2.5-VL-72B-Instruct/snapshots/5d8e/", "qwen2.5-vl-72b"),
        ("/hub/models--bert-base-uncased/snapshots/5d8e", "bert-base"),
        # No dense decoders, although their ids say a size.
        ("facebook/mms-1b-all", None),
        ("facebook/seamless-m4t-2b", None),
        ("google/madlad400-3b-mt", None),
        ("google/t5gemma-2b-2b-prefixlm-it", None),
        ("EuroBERT/EuroBERT-610m", None),
        ("facebook/esm2_t33_650M_UR50D", None),
        ("Qwen/Qwen3-ASR-0.6B", None),
        ("AIDC-AI/Ovis2-4B", None),
        ("OpenGVLab/InternViT-6B-448px-V1-5", None),
        ("ai4bharat/indictrans2-en-indic-1B", None),
        ("THUDM/CogVideoX-5b", None),
        ("ibm-granite/granite-3.0-3b-a800m-instruct", None),
        ("01-ai/Yi-VL-34B", None),
        ("OpenGVLab/InternVL3-14B", "internvl3_5-8b"),
        ("OpenGVLab/InternVL3-38B", None),
        ("THUDM/GLM-4.1V-9B-Thinking", "glm-4.6v-flash"),
        ("mistralai/Devstral-2-123B", "mistral-medium-3.5-128b"),
        ("mistralai/Pixtral-Large-124B", None),
        ("mistralai/Voxtral-Small-24B", None),
        ("me/gemma-4-25b", "gemma-2-27b"),
        ("nvidia/Nemotron-3-Nano-9B", None),
        ("me/mine-2000b", None),
    ],
)
def test_an_unknown_model_is_like_its_family_in_its_size_or_unknown(name, like):
    shape = shape_of(name)
    assert (shape and shape.config) == (shape_of(like).config if like else None)


def test_a_model_whose_images_are_not_known_is_refused(tmp_path):
    name = "base_model: me/Llama-3.2-11B-Vision-Mine\n"
    [obstacle] = read(tmp_path, f"{name}processor_type: AutoProcessor\n").obstacles
    assert obstacle.why.startswith("random images cannot be made for mllama")


@pytest.mark.parametrize(
    ("name", "size"), [("llava-hf/llava-1.5-7b-hf", None), ("Qwen/Qwen2-VL-7B-Instruct", 448)]
)
def test_random_images_have_a_size_where_the_model_has_none(tmp_path, name, size):
    text = f"base_model: {name}\nprocessor_type: AutoProcessor\n"
    assert read(tmp_path, text).document["data"]["synthetic"].get("image_size") == size


def test_a_family_that_a_key_names_counts_where_the_model_has_none(tmp_path):
    for name, expected in (("mine-7b", "mistral"), ("Qwen2.5-7B", "qwen2")):
        text = f"base_model: {name}\nis_mistral_derived_model: true\n"
        assert read(tmp_path, text).document["model"]["architecture"] == expected


def test_a_shape_under_another_word_of_the_name_is_no_exact_one(tmp_path):
    names = {"bert-base-cased": "taken", "my-bert-base": "nearest", "AI21-Jamba-v0.1": "taken"}
    for name, verdict in names.items():
        assert became(read(tmp_path, f"base_model: {name}\n"), "base_model") == verdict


def changed(folder: Path, name: str, text: str, **choices):
    """The user's file with the plan's choices, of which some are others."""
    (folder / name).write_text(text)
    target = folder / "ours.yaml"
    init.main(["--from", str(folder / name), "--output", str(target), "--force"])
    (trial,) = plan(load_config(target)).trials
    return changed_file(folder / name, {**trial.choices, **choices})


def test_a_number_is_never_a_switch_and_a_subcommand_no_option(tmp_path):
    quantized = FACTORY.replace("full", "lora") + "quantization_bit: 8\n"
    kept = changed(tmp_path, "f.yaml", quantized, base="16bit")
    assert (kept.text, kept.not_written) == (quantized, ("base: 16bit",))
    pure = changed(tmp_path, "p.yaml", FACTORY.replace("bf16", "pure_bf16"), precision="bf16")
    assert (pure.changes, pure.not_written) == (("pure_bf16: False", "bf16: True"), ())
    pairs = FACTORY.replace("stage: sft", "stage: dpo")
    assert "stage: sft\n" in changed(tmp_path, "g.yaml", pairs, loop="trainer").text
    result = changed(tmp_path, "dpo.txt", TRL, loop="trainer", micro_batch=2)
    assert result.text == TRL.replace("batch_size 4", "batch_size 2")
    assert result.not_written == ("loop: trainer",)


def test_a_key_that_a_script_may_lack_is_changed_and_never_added(tmp_path):
    text = "model_name_or_path: gpt2\nlearning_rate: 0.1\nblock_size: 9\n"
    lacks = changed(tmp_path, "a.yaml", text, attention="eager")
    assert (lacks.text, lacks.not_written) == (text, ("attention: eager",))
    has = changed(tmp_path, "b.yaml", f"{text}attn_implementation: sdpa\n", attention="eager")
    assert has.changes == ("attn_implementation: eager",)


def test_a_downloaded_model_has_the_shape_of_its_own_config(tmp_path, monkeypatch):
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    snapshot = tmp_path / "hub" / "models--of--nobody" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"model_type": "llama", "hidden_size": 48}')
    shape = shape_of("of/nobody")
    assert (shape.architecture, shape.config) == ("llama", {"hidden_size": 48})
    assert shape.is_exact


@pytest.mark.parametrize("name", ["./tiny", "tiny"])
def test_a_model_folder_is_looked_up_beside_the_file(name, tmp_path):
    (tmp_path / "tiny").mkdir()
    config = {"model_type": "llama", "hidden_size": 48}
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(config))
    result = read(tmp_path, AXOLOTL.replace("meta-llama/Llama-3.2-1B-Instruct", name))
    assert result.document["model"]["config"] == {"hidden_size": 48}


def test_only_changed_keys_of_a_yaml_file_change(tmp_path):
    text = AXOLOTL.replace("micro_batch_size: 2", "micro_batch_size: 2  # fits")
    assert changed(tmp_path, "mine.yml", text).text == text
    result = changed(
        tmp_path,
        "mine.yml",
        text,
        micro_batch=8,
        accumulation=1,
        loss="plain",
        kernels="none",
        activations="checkpoint_reentrant",
        compile="inductor_regional",
    )
    expected = text.replace("micro_batch_size: 2", "micro_batch_size: 8")
    expected = expected.replace("accumulation_steps: 4", "accumulation_steps: 1")
    expected = expected.replace("{use_reentrant: false}", "{use_reentrant: true}")
    expected = expected.replace("liger_rms_norm: true", "liger_rms_norm: false")
    start = expected.index("plugins: [")
    end = expected.index("\n", start)
    assert result.text == f"{expected[:start]}plugins: []{expected[end:]}"
    assert result.not_written == ("compile: inductor_regional",)


def test_a_key_inside_a_block_changes_alone(tmp_path):
    block = "gradient_checkpointing_kwargs:\n  use_reentrant: false  # mine\n  other: 1"
    text = AXOLOTL.replace("gradient_checkpointing_kwargs: {use_reentrant: false}", block)
    result = changed(tmp_path, "mine.yml", text, activations="checkpoint_reentrant")
    assert result.text == text.replace("use_reentrant: false", "use_reentrant: true")


def test_missing_keys_are_added_in_the_words_of_the_dialect(tmp_path):
    more = {"activations": "keep", "optimizer": "adamw_bnb_8bit"}
    factory = changed(tmp_path, "mine.yaml", FACTORY, **more)
    added = factory.text.removeprefix(FACTORY).splitlines()
    assert sorted(added) == ["disable_gradient_checkpointing: true", "optim: adamw_bnb_8bit"]
    script = changed(tmp_path, "train.sh", SWIFT, kernels="liger", loss="liger", **more)
    for option in ("use_liger_kernel true", "gradient_checkpointing false", "optim adamw_bnb_8bit"):
        assert f"--{option} " in script.text
    assert "$(expr 16 / $nproc_per_node)" in script.text
    assert (factory.not_written, script.not_written) == ((), ())
    workers = changed(
        tmp_path, "w.yaml", f"{FACTORY}dataloader_num_workers: 4\n", dataloader="main_process"
    )
    assert workers.text.endswith("dataloader_num_workers: 0\n")
    fp32 = changed(
        tmp_path, "mine.yaml", FACTORY + "fp8: true\npure_bf16: true\n", precision="fp32"
    )
    assert fp32.changes == ("bf16: False", "pure_bf16: False", "fp8: False")
    liger = changed(tmp_path, "mine.yaml", AXOLOTL, kernels="liger", loss="liger").text
    assert "axolotl.integrations.liger.LigerPlugin" in yaml.safe_load(liger)["plugins"]
