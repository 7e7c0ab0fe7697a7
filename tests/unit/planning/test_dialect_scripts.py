"""Scripts and texts as people have them, beside those of the trainers' own examples."""

import pytest

from orchestrator.planning.dialects.translate import translated
from orchestrator.planning.dialects.write_back.changed_file import changed_file

CLM = "python run_clm.py --model_name_or_path gpt2 --block_size 64 --optim sgd"


def read(folder, text, name="train.sh"):
    (folder / name).write_text(text)
    return translated([folder / name])


def test_a_text_of_markdown_has_its_commands_between_fences(tmp_path):
    code = f"```bash\n{CLM} \\\n  --seed 5\n```"
    text = f"Don't run `x`.\n{code}\nIt's `y`.\n```\nz\n```"
    assert read(tmp_path, text, "README.md").document["measure"] == {"seed": 5}


def test_a_script_holds_the_file_that_it_writes_for_its_command(tmp_path):
    script = (
        "R=12\nDAY=$(date)\nF=out/$DAY.yml\ncat <<END > $F\nbase_model: gpt2\nadapter: lora\n"
        "datasets:\n$(ls *.json)\nlora_r: $R\nsequence_len: 48\nEND\naxolotl train $F --seed 3\n"
    )
    result = read(tmp_path, script)
    assert result.document["axes"]["adapter"] == {"lora": {"r": 12}}
    assert result.document["measure"] == {"seed": 3}
    assert {one.key: one.why for one in result.entries}["config"] == "read, too"


def test_a_file_option_of_several_words_is_no_file_that_the_script_writes(tmp_path):
    script = f"cat > a.json <<END\n{{}}\nEND\n{CLM} --deepspeed a.json b.json\n"
    entries = {one.key: one.why for one in read(tmp_path, script).entries}
    assert "give it with --from" in entries["deepspeed"]


def test_options_of_a_launcher_that_is_a_module_are_its_own(tmp_path):
    launched = "python -m accelerate.commands.launch --mixed_precision fp16 mine.py"
    result = read(tmp_path, CLM.replace("python run_clm.py", launched))
    assert result.dialects == ("accelerate", "TrainingArguments")
    assert result.document["axes"]["precision"] == "fp16"


@pytest.mark.parametrize(
    ("options", "axes"),
    [
        ("--bf16 1 --lora_dropout .25 --use_lora yes", {
            "precision": "bf16", "adapter": {"lora": {"lora_dropout": 0.25}}}),
        ("--use_peft no --lora_r 4", {"adapter": "none"}),
        ("--train_mode full --lora_alpha 4", {"adapter": "none"}),
        ("--lora_r 4 --modules_to_save wte lm_head", {
            "adapter": {"lora": {"r": 4, "modules_to_save": ["wte", "lm_head"]}}}),
        ("--q_lora True --bf16 0", {"precision": "fp32", "base": {"bnb_4bit": {"upcast": False}}}),
        ("--bits 8 --lora_modules all --double_quant False", {
            "adapter": {"lora": {"target_modules": "all-linear"}},
            "base": {"bnb_8bit": {"upcast": False, "bnb_4bit_use_double_quant": False}}}),
        ("--deepspeed --zero_stage 1", {"offload": "zero1"}),
        ("--use_lisa 1 --model_name_or_path Qwen/Qwen3-0.6B", {
            "trainable": {"matching": {"patterns": [r"layers\.(26|27)\."]}}}),
    ],
)  # fmt: skip
def test_common_words_of_scripts_say_what_is_trained(options, axes, tmp_path):
    found = read(tmp_path, f"{CLM} {options}").document["axes"]
    assert {"adapter": "none", **found}.items() >= axes.items()


def test_trl_is_known_by_its_keys_for_data(tmp_path):
    keys = "model_name_or_path: gpt2\nmax_seq_length: 64\ndataset_train_split: own\nbf16: true\n"
    assert read(tmp_path, keys, "own.yaml").document["axes"]["loop"] == "trl_sft"


@pytest.mark.parametrize(
    ("script", "task"),
    [("run_mlm", "masked-lm"), ("run_qa", "token-classification"), ("mine", None)],
)
def test_the_name_of_an_example_of_transformers_says_the_task(script, task, tmp_path):
    found = read(tmp_path, CLM.replace("run_clm", script).replace("gpt2", "bert-base-uncased"))
    assert found.document["model"]["task"] == (task or "sequence-classification")


def test_a_changed_option_is_one_of_the_command_and_not_of_others(tmp_path):
    script = (
        "#SBATCH --gpus 1\naccelerate launch --num_processes 1 mine.py --block-size=8 --bf16 1\n"
    )
    (tmp_path / "train.sh").write_text(script)
    changed = changed_file(tmp_path / "train.sh", {"optimizer": "sgd"}).text
    assert changed == script.replace("--block-size", "--optim sgd --block-size")
    (tmp_path / "train.sh").write_text(
        script.replace("block-size=8", "gradient-accumulation-steps 8")
    )
    changed = changed_file(tmp_path / "train.sh", {"accumulation": 2}).text
    assert changed == script.replace("--block-size=8", "--gradient_accumulation_steps 2")
