"""Exported files of TRL's loop and of a user's own Trainer train with the trial's losses."""

import importlib.util
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from jobs.finetuning.user_code.sources import source_digest
from jobs.spec import DataSpec, RowLengthDistribution, SyntheticData, TrialSpec, UserCode
from orchestrator.export.writing import export
from tests.conftest import build_tiny_spec
from tests.integration.conftest import assert_export_trains_as
from tests.support.fresh_processes import AS_MEASURED, figures_of, measured_record
from tests.support.json_rows import file_of
from tests.support.tiny_decoders import MODEL
from tests.support.word_tokenizer import CHAT_TEMPLATE, save_word_tokenizer

PROMPTS = [
    {"prompt": "was the film good", "completion": "yes"},
    {"prompt": "bad", "completion": "no"},
] * 12
OWN_TRAINER = """
import transformers

class Doubled(transformers.Trainer):
    def compute_loss(self, *args, **kwargs):
        return 2 * super().compute_loss(*args, **kwargs)
"""
needs_trl = pytest.mark.skipif(
    importlib.util.find_spec("trl") is None, reason="the package trl is not installed"
)


def data_of(
    rows: list[Any], folder: Path, synthetic: SyntheticData, *, max_length: int
) -> DataSpec:
    """The rows as a user's file; without rows, random ones."""
    if not rows:
        return DataSpec(synthetic=synthetic)
    tokenizer = save_word_tokenizer(folder / "tokenizer", chat_template=CHAT_TEMPLATE)
    return DataSpec(file=file_of(rows, folder, tokenizer=tokenizer, max_length=max_length))


def assert_same_losses(
    spec: TrialSpec, processes: ForkServerContext, folder: Path, rel: float
) -> None:
    """Assert that the exported script has the mean loss of the trial."""
    losses = measured_record(processes, spec, folder).steps["loss"]
    assert_export_trains_as(processes, spec, losses, folder, rel=rel)


@needs_trl
@pytest.mark.slow
@pytest.mark.parametrize("case", ["padded", "prompts"])
def test_exported_sft_trains_with_the_trials_losses(case, processes, tmp_path):
    synthetic = SyntheticData(sequence_length=16, samples=16, padding=0.3)
    rows = PROMPTS if case == "prompts" else []
    data = data_of(rows, tmp_path, synthetic, max_length=16)
    spec = replace(build_tiny_spec({"loop": "trl_sft"}), model=MODEL, data=data)
    assert_same_losses(spec, processes, tmp_path, rel=1e-3)
    requirements = (tmp_path / "exported/requirements.txt").read_text().splitlines()
    assert "trl>=1.16,<1.17" in requirements


CHATS = [
    {
        "prompt": [{"role": "user", "content": f"was the {adverb} film good"}],
        "chosen": [{"role": "assistant", "content": "yes the film was very good"}],
        "rejected": [{"role": "assistant", "content": "no"}],
    }
    for adverb in ("very", "a", "the")
] * 8
IMPLICIT = [
    {"chosen": "was the film good yes very", "rejected": "was the film good no"},
    {"chosen": "a bad film yes", "rejected": "a bad film no no"},
] * 12
PREFERENCES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "random": ([], {}),
    "chats": (CHATS, {"loop": "trl_dpo(beta=0.3,loss_type=[ipo,sft])"}),
    "adapter": (IMPLICIT, {"adapter": "lora_r8", "loop": "trl_dpo(precompute_ref_log_probs=true)"}),
}
"""Name -> rows of a file, if there is one, and choices."""


@needs_trl
@pytest.mark.slow
@pytest.mark.parametrize("case", PREFERENCES)
def test_exported_dpo_trains_with_the_trials_losses(case, processes, tmp_path):
    rows, choices = PREFERENCES[case]
    lengths = RowLengthDistribution(distribution="uniform", mean=10)
    synthetic = SyntheticData(sequence_length=16, samples=16, lengths=lengths)
    # The limit is shorter than some answers, so that both trainings cut.
    data = data_of(rows, tmp_path, synthetic, max_length=9)
    # A whole epoch has the exported script's order of rows of unequal length.
    spec = build_tiny_spec(
        {"loop": "trl_dpo", **choices}, training_arguments={"learning_rate": 1e-2}, steps=None
    )
    assert_same_losses(replace(spec, model=MODEL, data=data), processes, tmp_path, rel=1e-5)


@pytest.mark.slow
def test_exported_own_trainer_is_imported_and_trains(processes, tmp_path):
    (tmp_path / "mine_to_export.py").write_text(OWN_TRAINER)
    own = UserCode(trainer="mine_to_export:Doubled", folder=str(tmp_path))
    spec = replace(build_tiny_spec(), own_code=replace(own, digest=source_digest(own)))
    losses = measured_record(processes, spec, tmp_path).steps["loss"]
    exported = tmp_path / "exported"
    export(spec, exported, label="a test")
    assert "compute_loss" not in (exported / "train.py").read_text()
    with pytest.raises(AssertionError, match="give --allow_own_code"):
        figures_of(processes, ["--max_steps", "2", *AS_MEASURED], exported, path=[str(tmp_path)])
    options = ["--max_steps", str(len(losses)), *AS_MEASURED, "--allow_own_code"]
    figures = figures_of(processes, options, exported, path=[str(tmp_path)])
    assert figures["train_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-3)
