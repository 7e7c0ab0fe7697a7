"""train.py and README.md: what they say, and that a hostile spec cannot write code into them."""

import dataclasses
import subprocess
import sys

import pytest

from jobs.spec import DatasetFile, DataSpec, ModelSpec, Needs, UserCode
from orchestrator.export.generated_code import NotExportableError
from orchestrator.export.script import _render, readme, train_script


def test_script_on_synthetic_data_asks_for_the_users_own(tiny_spec):
    text = train_script(tiny_spec(), "a test")
    assert "if not options.synthetic:" in text
    assert "YOUR MODEL" in text
    assert "YOUR DATASET" in text
    file = DatasetFile(path="x", format="json", max_length=8)
    own = dataclasses.replace(tiny_spec(), data=DataSpec(file=file))
    assert "synthetic" not in train_script(own, "a test")


def test_script_runs_a_checkpoints_code_only_where_asked(tiny_spec):
    model = ModelSpec(task="causal-lm", name_or_path="x", trust_remote_code=True)
    text = train_script(dataclasses.replace(tiny_spec(), model=model), "a test")
    assert "trust_remote_code=True" not in text
    assert "if not options.trust_remote_code:" in text


def test_script_of_several_processes_is_started_by_the_launcher_alone(tiny_spec):
    one, two = tiny_spec(), dataclasses.replace(tiny_spec({"offload": "zero2"}), world_size=2)
    hides_gpus = 'setdefault("CUDA_VISIBLE_DEVICES", "0")'
    assert hides_gpus in train_script(one, "a test")
    script = train_script(two, "a test")
    assert hides_gpus not in script
    assert '"WORLD_SIZE"' not in script
    for text in (script, readme(two, "a test", {}, [])):
        assert "    python train.py" not in text
        assert "$ python train.py" not in text
        assert "2 processes" in text


def test_script_prints_the_rows_peak_beside_its_own(tiny_spec):
    text = train_script(tiny_spec(), "a test", peak_bytes=12345)
    assert 'figures["measured_peak_allocated_bytes"] = 12345' in text


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "stranger/loading-script"},
        {"path": "https://example.org/data.json"},
        {"path": "zip://x.json::/tmp/x.zip"},
    ],
)
def test_script_that_would_fetch_a_strangers_data_is_not_exportable(tiny_spec, wrong):
    file = DatasetFile(**{"path": "x", "format": "json", "max_length": 8, **wrong})
    with pytest.raises(NotExportableError):
        train_script(dataclasses.replace(tiny_spec(), data=DataSpec(file=file)), "a test")


HOSTILE_NAMES = ("os:system()", "os\nimport evil:x", "os;evil():x", "a:import", "../evil:x", "os")


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_script_hostile_name_of_own_code_is_not_exportable(tiny_spec, name):
    for own in (UserCode(trainer=name), UserCode(callbacks=(name,)), UserCode(collator=name)):
        with pytest.raises(NotExportableError, match="not of the form module:object"):
            train_script(dataclasses.replace(tiny_spec(), own_code=own), "a test")


def test_script_imports_own_code_by_name_and_only_with_the_word(tiny_spec):
    own = UserCode(trainer="pack.train:Mine", callbacks=("pack.train:Count",), folder="/secret")
    text = train_script(dataclasses.replace(tiny_spec(), own_code=own), "a test")
    main = text[text.index("def main()") :]
    asks = main.index("if not options.allow_own_code:")
    assert asks < main.index("from pack.train import Mine as own_0")
    assert "trainer = own_0(" in main
    assert "callbacks=[own_1]" in main
    assert "import pack" not in text.replace("from pack.train import", "")
    assert "class AccumulatingTrainer" not in text
    assert "/secret" not in text


def test_templates_print_nothing_that_is_not_checked(tiny_spec):
    context = {
        "label": "not checked",
        "hooks": {},
        "loop": "trainer",
        "measured": {},
        "notes": [],
        "uses_deepspeed": False,
        "is_synthetic": True,
        "has_random_weights": True,
        "asks_for_remote_code": False,
        "evaluates_and_saves": False,
    }
    with pytest.raises(NotExportableError, match="which is not checked"):
        _render("README.md.j2", context)


@pytest.mark.parametrize("gpus", [0, 1])
def test_readme_says_that_a_training_measured_on_the_cpu_stays_there(tiny_spec, gpus):
    spec = dataclasses.replace(tiny_spec(), needs=Needs(gpus=gpus))
    assert ("`--use_cpu false`" in readme(spec, "a test", {}, [])) == (gpus == 0)


def test_readme_has_figures_and_notes_on_a_line_each(tiny_spec):
    spec = tiny_spec({"adapter": "lora_r8"})
    text = readme(spec, "a test", {"memory": "3 GiB\n<b>"}, ["a note\n# a heading"])
    assert "- **memory**: 3 GiB ‹b>" in text.splitlines()
    assert "Note: a note # a heading" in text.splitlines()
    assert "model, data, adapter and the Trainer" in text


def test_readme_says_whether_the_trial_evaluated(tiny_spec):
    for evaluates, words in (
        (False, "did not evaluate or save."),
        (True, "evaluated and saved once"),
    ):
        spec = tiny_spec(evaluate_and_save=evaluates)
        assert f"The measured trial {words}" in readme(spec, "a test", {}, [])


LLAMA = ModelSpec(task="causal-lm", architecture="llama")
TECHNIQUES = [
    {},
    {"loop": "accelerate", "batching": "packed_whole_rows"},
    {"loop": "trl_sft"},
    {"loop": "trl_dpo", "adapter": "lora_r8", "base": "bnb_4bit"},
    {"batching": "padding_free", "attention": "unmasked"},
    {"compile": "inductor_regional", "loss": "chunked", "optimizer": "muon"},
    {"loss": "cce", "kernels": "liger", "activations": "checkpoint_selective"},
    {"offload": "zero2", "activations": "checkpoint_offload"},
]


@pytest.mark.parametrize("choices", TECHNIQUES, ids=str)
def test_ruff_finds_nothing_in_a_script(choices, tiny_spec, tmp_path):
    spec = dataclasses.replace(tiny_spec(choices), model=LLAMA)
    codes = {"plain": None}
    if "loop" not in choices:
        codes |= {
            "collator": UserCode(collator="mine:collate"),
            "entry": UserCode(entry="mine:make"),
        }
    for name, own in codes.items():
        (tmp_path / name).mkdir()
        text = train_script(dataclasses.replace(spec, own_code=own), "a test")
        (tmp_path / name / "train.py").write_text(text)
        (tmp_path / name / "measured_data.py").touch()
        ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "train.py"]
        found = subprocess.run(ruff, cwd=tmp_path / name, capture_output=True, text=True)
        assert found.returncode == 0, found.stdout
