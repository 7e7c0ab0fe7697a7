"""Commands of shell scripts, and files that name others, as ``init --from`` reads them."""

import json
import re

import pytest

from orchestrator import init
from orchestrator.planning.config import load_config
from orchestrator.planning.dialects.registry import UnreadableFileError
from orchestrator.planning.dialects.shell import commands
from orchestrator.planning.dialects.trainers.tables import Verdict
from orchestrator.planning.dialects.translate import translated
from orchestrator.planning.dialects.write_back.changed_file import changed_file
from orchestrator.planning.prechecks.mistakes import check_files
from orchestrator.reporting.verbs.translation import table

CLM = "python run_clm.py --model_name_or_path gpt2 --block_size 64"
SMALL = "--per_device_train_batch_size 2 --model_name_or_path"
TRL = "trl sft --model_name_or_path gpt2 --per_device_train_batch_size 2"


def read(folder, text, name="train.sh", *others, **options):
    (folder / name).write_text(text)
    return translated([folder / name, *others], **options)


def said(result, key):
    return next((f"{own.verdict}: {own.why}" for own in result.entries if own.key == key), "")


@pytest.mark.parametrize(
    "ending",
    [
        " > out.txt",
        " 2>errors.txt",
        " >> out.txt 2>&1 &",
        " 2>&1 | tee -a out.txt",
        " &> out.txt",
        " && python evaluate.py --limit 5",
        "; echo --finished",
        " || exit 1",
        ") | cat",
        " \\",
        " # --per_device_train_batch_size 9 it's",
        " \\\n# a comment \\\n",
        " $@",
        " $MORE",
    ],
)
def test_command_ends_where_bash_ends_it(ending, tmp_path):
    start = "(" if ending.startswith(")") else ""
    result = read(tmp_path, f"{start}{CLM} --per_device_train_batch_size 3{ending}")
    assert result.document["axes"]["micro_batch"] == 3


def words(script):
    return [found for found, _ in commands(script, {})]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("x --set a/b#9 --n 1 # c --m 2", "x --set a/b#9 --n 1"),
        ("# c \\\nx --n 1", "x --n 1"),
        ("x --n 1 \\\n  # c \\\n  --m 2", "x --n 1 | --m 2"),
        ("A='--n 1'\nA+=' --m 2'\nx $A", "x --n 1 --m 2"),
        ('A=(--n 1)  # c\nA+=(\n  --m 2 # c\n)\nx "${A[@]}"', "x --n 1 --m 2"),
        ('A="\n  --n 1 \\\n  --m 2"\nx $A', "x --n 1 --m 2"),
        ("A=24; B=3\nx --n $((A / B / 2)) --m `expr $B \\* 5`", "x --n 4 --m 15"),
        ("x --n $(( (7 + 5) * 2 % 9 )) --m ${N:-$((6-2))}", "x --n 6 --m 4"),
        ("x --n $((9 ** 9)) --m $((1/0)) $(cat y | wc -l)", "x --n $(...) --m $(...) $(...)"),
        ("A=$1\nx --n ${A:-5} --m ${B} --o ${C%.*}", "x --n 5 --m ${B} --o ${C%.*}"),
        ('srun --ntasks 2 bash -c "x --n 1"', "x --n 1"),
        ('A="x --n 1"\neval "$A --m 2"', "x --n 1 --m 2"),
        ("sbatch <<END\nit's\nx --n 1\nEND\n", "sbatch | it | s | x --n 1"),
        ("don't\nx --n 1\nwon't", "don | t | x --n 1 | won | t"),
        ("if y; then A=2; else A=6; fi\nx --n $A", "if y | fi | x --n 6"),
        ("N=${2:?how many, <1 2 3>}\nx --n $N --m ${M?none}", "x --n $N --m ${M}"),
        (
            "x --n <a b> --m </dev/z\ny <in.txt > out.txt",
            "x --n ${...} --m | /dev/z | y | in.txt | out.txt",
        ),
        ("N=7\nwhile y; do N=$1; done\nx --n $N", "while y | done | x --n 7"),
    ],
)
def test_commands_are_split_and_expanded_as_bash_does(script, expected):
    assert " | ".join(map(" ".join, words(script))) == expected


def test_what_the_shell_would_compute_is_no_value(tmp_path):
    script = f"""{CLM} --per_device_train_batch_size $SIZE --learning_rate $(cat lr.txt) \\
        --train_file $DATA/rows.json --gradient_accumulation_steps $((2 * STEPS))
    """
    result = read(tmp_path, script)
    for key in ("per_device_train_batch_size", "learning_rate", "gradient_accumulation_steps"):
        assert said(result, key).startswith("unknown: an unresolved variable")
    assert "$" not in json.dumps(result.document)
    assert "micro_batch" not in result.document["axes"]
    named = read(tmp_path, CLM.replace("gpt2", "$HUB/gpt2-medium") + " --optim sgd").document
    assert named["model"]["config"]["n_layer"] == 24
    missing = read(tmp_path, CLM.replace("gpt2", "${NAMES[$i]}") + " --optim sgd").missing
    assert "model_name_or_path: ${NAMES[$i]} (an unresolved variable" in missing


def test_other_commands_and_other_values_are_said(tmp_path):
    script = f"""SIZE=2
        if [ $GPU = big ]; then SIZE=16; fi
        {CLM} --per_device_train_batch_size $SIZE
        {CLM} --per_device_train_batch_size 5
        swift infer --model gpt2
    """
    result = read(tmp_path, script)
    notes = {own.key: own.value for own in result.entries}
    assert (notes["variables set more than once"], notes["commands that train"]) == ("SIZE", 2)
    assert result.document["axes"]["micro_batch"] == 16
    assert result.dialects == ("TrainingArguments",)
    exported = f"swift export --model gpt2 --bf16\n{TRL}"
    assert read(tmp_path, exported).document["axes"]["micro_batch"] == 2


@pytest.mark.parametrize(
    ("name", "offload"),
    [
        ("conf/z3_offload_params.json", "zero3_cpu_parameters"),
        ("stage_2-no-offload.json", "zero2"),
        ("zero3_without_offload.json", "zero3"),
        ("my_stage1.json", "zero1"),
        ("engine.json", None),
    ],
)
def test_a_deepspeed_file_that_is_absent_is_asked_for(name, offload, tmp_path):
    script = f"{CLM} --per_device_train_batch_size 1 --deepspeed {name}"
    result = read(tmp_path, script)
    assert result.document["axes"].get("offload") == offload
    assert "give it with --from" in said(result, "deepspeed")
    assert said(result, "deepspeed").startswith("nearest: by its name" if offload else "unknown")
    given = tmp_path / "engine.json"
    given.write_text('{"zero_optimization": {"stage": 1}, "gradient_accumulation_steps": 6}')
    result = read(tmp_path, script, "train.sh", given)
    assert result.document["deepspeed"]["zero_optimization"] == {"stage": 1}
    assert (result.document["axes"]["accumulation"], said(result, "deepspeed")) == (6, "taken: ")


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("llamafactory-cli train more/own.yaml", "{stage: sft, model_name_or_path: gpt2"),
        ("axolotl train more/own.yaml --learning-rate 1e-4", "{base_model: gpt2"),
        ("accelerate launch -m axolotl.cli.train more/own.yaml", "{base_model: gpt2"),
        ("trl sft --config more/own.yaml", "{model_name_or_path: gpt2, max_length: 32"),
        ("accelerate launch tune_dpo.py more/own.yaml", "{model_name_or_path: gpt2, lora_r: 2"),
    ],
)
def test_a_file_that_a_command_names_is_read_beside_it_or_asked_for(command, keys, tmp_path):
    asked = "config: more/own.yaml (it decides the training, and is not here: give it with --from"
    assert asked in read(tmp_path, command).missing
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "own.yaml").write_text(keys + ", optim: sgd, optimizer: sgd}")
    result = read(tmp_path, command)
    assert result.document["axes"]["optimizer"] == "sgd"
    assert said(result, "config") == "taken: read, too"
    # A path that leads out of the folder of the script is not read.
    (tmp_path / "scripts").mkdir()
    outside = command.replace("more", "../more")
    assert "is not here" in read(tmp_path / "scripts", outside).missing
    other = tmp_path / "more" / "own.yaml"
    assert not read(tmp_path / "scripts", outside, "train.sh", other).missing
    assert (
        "is not here" in read(tmp_path, command.replace("more/own", str(other.resolve()))).missing
    )


def test_a_path_from_the_root_of_a_repository_is_found_from_a_folder_inside_it(tmp_path):
    inside = tmp_path / "examples" / "own"
    inside.mkdir(parents=True)
    (inside / "own.yaml").write_text("{base_model: gpt2, sequence_len: 48}")
    (tmp_path / "own.yaml").write_text("{base_model: gpt2-xl, sequence_len: 96}")
    guide = "# Train\n```bash\naxolotl train %s\n```\n"
    result = read(inside, guide % "examples/own/own.yaml", "README.md")
    assert result.document["data"]["synthetic"]["sequence_length"] == 48
    # A name without a folder is of a file beside it, and no other.
    (inside / "own.yaml").rename(tmp_path / "other.yaml")
    assert "is not here" in read(inside, guide % "own.yaml", "README.md").missing
    absolute = str(tmp_path / "other.yaml")
    assert "is not here" in read(inside, guide % absolute, "README.md").missing


def test_a_list_of_options_without_a_command_trains_nothing(tmp_path):
    with pytest.raises(UnreadableFileError, match="none of the known dialects"):
        read(tmp_path, "--cutoff_len 512 \\\n  --bf16 true\n")


def test_keys_of_a_file_change_in_the_file_and_not_in_the_script_that_names_it(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("llamafactory-cli train own.yaml\n")
    with pytest.raises(UnreadableFileError, match=r"its keys are in own\.yaml: give that file"):
        changed_file(script, {})


def test_values_after_a_file_go_before_its_keys(tmp_path):
    (tmp_path / "own.yaml").write_text("{stage: sft, model_name_or_path: gpt2, cutoff_len: 512}")
    command = "A=1 env llamafactory-cli train own.yaml cutoff_len=40 optim=adafactor"
    document = read(tmp_path, command).document
    assert document["data"]["synthetic"]["sequence_length"] == 40
    assert document["axes"]["optimizer"] == "adafactor"


def test_options_of_a_launcher_say_what_its_file_would(tmp_path):
    launch = "accelerate launch --zero_stage 2 --offload_optimizer_device cpu --multi_gpu"
    result = read(tmp_path, f"{launch} {CLM.split(' ', 1)[1]} --optim adamw_torch")
    assert result.document["axes"]["offload"] == "zero2_cpu_optimizer"
    assert said(result, "multi_gpu").startswith("left aside")


@pytest.mark.parametrize("launch", ["--num_processes 2", "--bf16", "--main_process_port=9"])
def test_a_launcher_calls_a_command_that_is_no_script(tmp_path, launch):
    result = read(tmp_path, f"accelerate launch {launch} {TRL}")
    assert result.document["axes"]["loop"] == "trl_sft"
    assert result.document["axes"]["micro_batch"] == 2
    first = "num_processes: 2 (one GPU trains here"
    assert (first in table(result)) == (launch == "--num_processes 2")


def test_keys_that_are_left_aside_for_one_reason_share_a_line(tmp_path):
    options = "--eval_strategy steps --output_dir here --eval_steps 5 --run_name a --hub_model_id b"
    shown = table(read(tmp_path, f"{TRL} {options}"))
    assert "  eval_strategy, eval_steps (measure.evaluate_and_save measures one eval" in shown
    assert "  run_name (changes neither memory nor speed)" in shown


def test_a_launchers_file_that_is_absent_is_not_left_aside(tmp_path):
    command = f"accelerate launch --config_file fsdp.yaml {CLM.split(' ', 1)[1]} --optim sgd"
    assert said(read(tmp_path, command), "config_file").startswith("unknown: it decides")


def test_a_command_goes_before_files_in_any_order_and_the_losing_key_says_so(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text("{per_device_train_batch_size: 7, warmup_steps: 50, warmup_ratio: 0.2}")
    script = tmp_path / "run.sh"
    script.write_text(f"{CLM} --per_device_train_batch_size 4 --bf16")
    for files in ([own, script], [script, own]):
        result = translated(files)
        assert result.document["axes"]["micro_batch"] == 4
        lost = [one.key for one in result.entries if one.verdict == "overruled"]
        assert lost == ["per_device_train_batch_size", "warmup_steps"]
    assert said(result, "warmup_steps") == "overruled: warmup_ratio: 0.2 decides it"


def test_a_repeated_key_counts_last_where_its_trainer_reads_the_file(tmp_path):
    text = "base_model: gpt2\nmicro_batch_size: 2\nsequence_len: 32\nmicro_batch_size: 6\n"
    result = read(tmp_path, text, "own.yml")
    assert result.document["axes"]["micro_batch"] == 6
    assert [one.value for one in result.entries if "more than once" in one.key] == [
        "micro_batch_size"
    ]
    factory = text.replace("base_model", "model_name_or_path") + "stage: sft\n"
    with pytest.raises(UnreadableFileError, match="given twice"):
        read(tmp_path, factory, "own.yml")


@pytest.mark.parametrize(
    ("options", "precision"),
    [
        ("", "bf16"),
        ("--fp16", "fp16"),
        ("--fp16 True --bf16 False", "fp16"),
        ("--no_bf16", "fp32"),
        ("--bf16 False", "fp32"),
    ],
)
def test_trl_trains_in_bf16_unless_fp16_is_on(options, precision, tmp_path):
    assert read(tmp_path, f"{TRL} {options}").document["axes"]["precision"] == precision


def test_switches_that_turn_off_and_scripts_among_options(tmp_path):
    command = f"{TRL} --no-gradient-checkpointing --logging_dir mine.py --max_length 48"
    document = read(tmp_path, command).document
    assert (document["axes"]["activations"], document["axes"]["micro_batch"]) == ("keep", 2)
    assert document["data"]["synthetic"]["sequence_length"] == 48


def test_a_model_from_scratch_is_a_model(tmp_path):
    script = CLM.replace("model_name_or_path gpt2", "config_name gpt2-medium") + " --optim sgd"
    assert read(tmp_path, script).document["model"]["config"]["n_layer"] == 24


def test_a_batch_size_is_never_left_aside(tmp_path):
    result = read(tmp_path, f"{CLM} --per_device_train_batch_size auto --optim sgd")
    assert said(result, "per_device_train_batch_size") == "unknown: no whole number"


def test_a_script_without_a_loop_here_is_refused_in_its_own_words(tmp_path, capsys):
    (tmp_path / "run.sh").write_text("python kto.py --model_name_or_path gpt2 --optim sgd")
    assert init.main(["--from", str(tmp_path / "run.sh"), "--output", str(tmp_path / "o")]) == 2
    assert "nothing was written: the command: kto (no loop here" in capsys.readouterr().err


def test_variables_of_variables_fill_no_memory():
    (called,) = words("A=x\n" + "A=$A$A\n" * 50 + "x --n $A")
    assert len(" ".join(called)) < 2**16


@pytest.mark.parametrize(
    ("command", "model", "synthetic"),
    [
        ("python run_summarization.py", "google-t5/t5-base", {"length": 96, "target_length": 32}),
        ("python qlora.py", "huggyllama/llama-7b", {"length": 128}),
    ],
)
def test_target_is_a_part_of_what_a_decoder_alone_reads(command, model, synthetic, tmp_path):
    lengths = "--max_source_length 96 --max_target_length 32 --per_device_train_batch_size 2"
    result = read(tmp_path, f"{command} --model_name_or_path {model} {lengths}")
    found = result.document["data"]["synthetic"]
    assert found["sequence_length"] == synthetic["length"]
    assert found.get("target_length") == synthetic.get("target_length")


def test_arguments_of_examples_that_name_rows_are_read_or_left_aside(tmp_path):
    (tmp_path / "news.jsonl").write_text('{"article": "a b", "highlights": "a"}\n')
    given = (
        "--train_file news.jsonl --text_column article --summary_column highlights "
        "--predict_with_generate --generation_max_length 60 --max_eval_samples 9 "
        "--ignore_mismatched_sizes --source_prefix short:"  # with a colon at its end, as a key has
    )
    result = read(tmp_path, f"python run_summarization.py {SMALL} google-t5/t5-small {given}")
    columns = {"text": "article", "target": "highlights"}
    assert result.document["data"]["file"]["columns"] == columns
    assert not [one.key for one in result.entries if one.verdict is Verdict.UNKNOWN]


@pytest.mark.parametrize(
    ("model", "seconds"),
    [("facebook/wav2vec2-base", 17.5), ("google-t5/t5-small", None)],
)
def test_duration_is_that_of_sounds_alone(model, seconds, tmp_path):
    result = read(tmp_path, f"python run.py {SMALL} {model} --max_duration_in_seconds 17.5")
    assert result.document["data"]["synthetic"].get("seconds") == seconds


@pytest.mark.parametrize(
    ("model", "task"),
    [
        ("openai/whisper-small", "speech-seq2seq"),
        ("facebook/wav2vec2-large-xlsr-53", "speech-ctc"),
        ("microsoft/wavlm-base", "speech-ctc"),
    ],
)
def test_speech_model_has_a_transcript_that_fits_it(model, task, tmp_path):
    result = read(tmp_path, f"python run_speech_recognition.py {SMALL} {model}")
    assert result.document["model"]["task"] == task
    assert not result.obstacles
    check_files(load_config(result.document))
    # Whisper's encoder takes one length.
    guessed = {one.key for one in result.entries if one.key.startswith("length of")}
    sounds = {"length of the sounds"} if task == "speech-ctc" else set()
    assert guessed == {"length of the rows"} | sounds


@pytest.mark.parametrize(
    ("deepspeed", "optimizer"),
    [
        ({"zero_optimization": {"stage": 2}}, "adamw_bnb_8bit"),
        (
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}},
            "adamw_bnb_8bit",
        ),
        ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}, None),
        ({"optimizer": {"type": "AdamW"}}, None),
    ],
)
def test_optimizer_that_deepspeed_replaces_is_left_out(deepspeed, optimizer, tmp_path):
    (tmp_path / "zero.json").write_text(json.dumps(deepspeed))
    script = f"{CLM} --per_device_train_batch_size 1 --optim adamw_bnb_8bit --deepspeed zero.json"
    assert read(tmp_path, script).document["axes"].get("optimizer") == optimizer


@pytest.mark.parametrize(
    ("key", "model", "trained", "frozen"),
    [
        (
            "freeze_feature_encoder",
            "facebook/wav2vec2-base",
            "encoder.",
            "feature_extractor.",
        ),
        (
            "freeze_encoder",
            "openai/whisper-small",
            "model.decoder.",
            "model.encoder.",
        ),
    ],
)
def test_frozen_part_of_a_speech_model_is_not_trained(key, model, trained, frozen, tmp_path):
    script = f"python run_speech_recognition.py {SMALL} {model} --group_by_length --{key}"
    axes = read(tmp_path, f"{script} True").document["axes"]
    [pattern] = axes["trainable"]["matching"]["patterns"]
    assert (bool(re.search(pattern, trained)), bool(re.search(pattern, frozen))) == (True, False)
    assert "batching" not in axes
    assert "trainable" not in read(tmp_path, f"{script} False").document["axes"]
