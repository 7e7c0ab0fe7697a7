"""A Trainer, callbacks and a collator of the user's own: found, hashed, and run in whole trials."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.finetuning.user_code import probe
from jobs.finetuning.user_code.objects import UserCodeError, user_objects
from jobs.finetuning.user_code.sources import SourceError, source_digest
from jobs.record import Outcome, TrialRecord
from jobs.spec import UserCode
from jobs.spec.users_code import is_object_name
from tests.conftest import build_tiny_spec
from tests.support.one_trial import measured

MARK = "raise SystemExit('imported')\n"


@pytest.fixture
def own(tmp_path: Path) -> UserCode:
    """A package that must not be imported, whose Trainer uses another module of its own."""
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text(MARK)
    (package / "train.py").write_text(f"{MARK}from .loss import mean\nclass Mine: ...\n")
    (package / "loss.py").write_text(f"{MARK}def mean(): ...\n")
    (package / "unused.py").write_text(MARK)
    return UserCode(trainer="pack.train:Mine", folder=str(tmp_path))


@pytest.mark.parametrize("file", ["__init__.py", "train.py", "loss.py", "unused.py"])
def test_digest_changes_with_every_module_that_the_trainer_runs(file, own):
    before = source_digest(own)
    path = Path(own.folder, "pack", file)
    path.write_text(path.read_text() + "# edited\n")
    assert (source_digest(own) == before) is (file == "unused.py")


def test_digest_follows_a_module_beside_the_config(own):
    Path(own.folder, "helper.py").write_text("one = 1\n")
    Path(own.folder, "mine.py").write_text("def f():\n    import helper\n")
    own = replace(own, trainer="", entry="mine:f")
    before = source_digest(own)
    Path(own.folder, "helper.py").write_text("one = 2\n")
    assert source_digest(own) != before


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere:Mine", "there is no module nowhere"),
        ("pack.nowhere:Mine", "there is no module pack.nowhere"),
        ("pack.train:Theirs", "defines no Theirs"),
        ("broken:Mine", "cannot be read as Python"),
    ],
)
def test_digest_of_a_mistake_is_a_sentence(name, sentence, own):
    Path(own.folder, "broken.py").write_text("class Mine(:\n")
    with pytest.raises(SourceError, match=sentence):
        source_digest(replace(own, trainer=name))


def test_is_object_name_takes_plain_names_only():
    assert all(map(is_object_name, ("my_package.train:MyTrainer", "train:Mine")))
    others = "train|train:Mine.inner|train:import|os;import evil:x|train:x\nimport os|tráin:Mine"
    for text in (*others.split("|"), "a" * 300 + ":Mine", None):
        assert not is_object_name(text), text


SOURCE = """
import transformers

def doubled(loss):
    return 2 * loss

class Doubled(transformers.Trainer):
    def compute_loss(self, *args, **kwargs):
        return doubled(super().compute_loss(*args, **kwargs))

class CountSteps(transformers.TrainerCallback):
    steps = 0
    def on_step_end(self, args, state, control, **kwargs):
        CountSteps.steps += 1

class Collate:
    batches = 0
    def __call__(self, rows):
        Collate.batches += 1
        return transformers.default_data_collator(rows)

def make(model, args, train_dataset, data_collator):
    return Doubled(
        model=model, args=args, train_dataset=train_dataset, data_collator=data_collator
    )

def make_nothing(model):
    return model

def make_another(args, train_dataset, data_collator, model):
    import copy
    return make(copy.deepcopy(model), args, train_dataset, data_collator)

number = 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("own")
    (path / "mine.py").write_text(SOURCE)
    yield str(path)
    sys.modules.pop("mine", None)
    if str(path) in sys.path:
        sys.path.remove(str(path))


def _own(folder: str, **names: Any) -> UserCode:
    own = UserCode(folder=folder, **names)
    return replace(own, digest=source_digest(own))


def _trial(
    own: UserCode | None, folder: Path, outcome: Outcome = Outcome.OK, **choices: Any
) -> TrialRecord:
    return measured(replace(build_tiny_spec(choices), own_code=own), folder, outcome)


def test_own_trainer_callbacks_and_collator_are_what_runs(folder, tmp_path):
    plain = _trial(None, tmp_path)
    names = {"trainer": "mine:Doubled", "collator": "mine:Collate"}
    own = _own(folder, callbacks=("mine:CountSteps",), **names)
    record = _trial(own, tmp_path)
    module = sys.modules["mine"]
    assert module.CountSteps.steps == len(record.steps["loss"])
    assert module.Collate.batches >= len(record.steps["loss"])
    for doubled in (record, _trial(_own(folder, entry="mine:make"), tmp_path)):
        assert doubled.steps["loss"][0] == pytest.approx(2 * plain.steps["loss"][0], rel=1e-5)
        assert doubled.measurements["trainer_class"] == "mine.Doubled"
    assert plain.measurements["trainer_class"] == "transformers.trainer.Trainer"
    assert record.measurements["samples_per_second"] > 0


def test_own_trainer_with_a_wrong_loss_is_flagged_and_kept(folder, tmp_path):
    # BERT's classifier ignores the count, as does this Trainer.
    own = _own(folder, trainer="mine:Doubled")
    record = _trial(own, tmp_path, accumulation=2)
    assert record.measurements["accumulation_loss_scaling"] == "native"
    assert "loss_times_accumulation" in record.measurements["flags"]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({"entry": "mine:make_nothing"}, "make_nothing returned a BertForSequenceClassification"),
        ({"entry": "mine:make_another"}, "the Trainer has another model"),
        ({"trainer": "mine:CountSteps"}, "is the class CountSteps, and no subclass of Trainer"),
        ({"callbacks": ("mine:Doubled",)}, "and no subclass of TrainerCallback"),
        ({"collator": "mine:number"}, "is an object of the class int, which cannot be called"),
    ],
)
def test_own_object_of_the_wrong_type_is_a_sentence(names, sentence, folder, tmp_path):
    record = _trial(_own(folder, **names), tmp_path, Outcome.FAILED)
    assert sentence in record.reason


def test_edited_trainer_is_another_trial_and_the_old_refused(folder, tmp_path):
    own = _own(folder, trainer="mine:Doubled")
    spec = replace(build_tiny_spec(), own_code=own)
    path = Path(folder, "mine.py")
    path.write_text(SOURCE + "# edited\n")
    try:
        edited = replace(spec, own_code=replace(own, digest=source_digest(own)))
        assert edited.trial_id != spec.trial_id
        with pytest.raises(UserCodeError, match="is not the one that this trial was planned with"):
            user_objects(own)
    finally:
        path.write_text(SOURCE)
    assert spec.trial_id != build_tiny_spec().trial_id


def test_probe_names_what_an_import_raises(tmp_path):
    (tmp_path / "raises_at_import.py").write_text("import no_such_library\nclass Mine: ...\n")
    own = UserCode(trainer="raises_at_import:Mine", folder=str(tmp_path))
    problem = probe.user_code_problem(replace(own, digest=source_digest(own)))
    assert problem == (
        "raises_at_import:Mine: importing raises_at_import raised ModuleNotFoundError: No module "
        "named 'no_such_library'"
    )
