"""Eighty damaged run folders: every verb reads what is intact, or says why not."""

import contextlib
import io
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from orchestrator import api, compare, explain, recommend, report
from orchestrator.storage.run_folder import RunFolder
from orchestrator.storage.run_metadata import UnreadableRunError
from orchestrator.storage.run_reader import anatomies_of
from orchestrator.storage.tables import parquet
from orchestrator.storage.tables.trial_table import table_of_records
from tests.support.damages import WHOLE, damaged, overwritten, torn

Main = Callable[[Sequence[str]], int]


def contents(folder: Path) -> dict[str, bytes | str]:
    """File among the records -> its bytes, or its name where reading it could block."""
    files: dict[str, bytes | str] = {}
    for path in sorted((folder / "records").iterdir()):
        if path.is_file() and not path.is_symlink():
            files[path.name] = path.read_bytes()
        else:
            files[path.name] = os.fsdecode(path.name)
    return files


def run_verb(main: Main, *arguments: str) -> tuple[int, str]:
    """A verb's exit status and everything it printed."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = main(arguments)
    return status, output.getvalue()


@contextlib.contextmanager
def only_errors_naming(path: Path, *kinds: type[Exception]) -> Iterator[list[Exception]]:
    """Collect errors of these kinds; each must name the path."""
    errors: list[Exception] = []
    try:
        yield errors
    except kinds as error:
        errors.append(error)
    assert all(str(path) in str(error) for error in errors)


def read_by_everything(folder: Path, intact: set[str], *, publish: bool) -> None:
    """Read the folder by every verb, and check that intact trials are always there."""
    before = contents(folder)
    run_folder = RunFolder(folder)
    records = run_folder.records()
    assert intact <= set(records)
    for trial_id, record in records.items():
        assert record.trial_id == trial_id
    assert {path.name for path in run_folder.unreadable} <= set(before)
    with only_errors_naming(folder, FileNotFoundError, UnreadableRunError):
        run = api.load(folder)
        assert {row["trial_id"] for row in run.dataset.rows} == set(records)
        run._repr_html_()
    path = str(folder)
    two_trials = [record.trial_id for record in WHOLE[3:5]]
    answers = [
        run_verb(recommend.main, path, "--all-training-recipes", "--json"),
        run_verb(recommend.main, path, "--all-training-recipes"),
        run_verb(compare.main, path, path, "--different-hardware"),
        run_verb(explain.main, path, *two_trials, "--json"),
    ]
    if publish:
        answers.append(run_verb(report.main, path, "--no-browser"))
    for status, text in answers:
        assert status in (0, 1, 2, 3)
        assert text.strip()
        assert "Traceback" not in text
    assert contents(folder) == before, "reading changes nothing"


@pytest.mark.parametrize("block", range(4))
def test_verbs_on_damaged_folders_read_every_intact_trial(block, tmp_path):
    for seed in range(20 * block, 20 * block + 20):
        folder = tmp_path / str(seed)
        try:
            read_by_everything(folder, damaged(folder, seed), publish=seed % 70 == 0)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which only its tables were kept."""
    folder = tmp_path_factory.mktemp("published")
    trials = parquet.arrow_table(table_of_records(WHOLE))
    parquet.write(trials, folder / "trials.parquet")
    parquet.write(parquet.steps_table(WHOLE), folder / "steps.parquet")
    parquet.write(parquet.anatomy_table(WHOLE), folder / "anatomy.parquet")
    return folder


def flipped(path: Path, chance: random.Random) -> None:
    """A bit of the first column is wrong, which only its page's checksum shows."""
    column = pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(0)
    whole = bytearray(path.read_bytes())
    first = column.dictionary_page_offset or column.data_page_offset
    whole[first + column.total_compressed_size - 1] ^= 1 << chance.randrange(8)
    path.write_bytes(whole)


@pytest.mark.parametrize("name", ["trials.parquet", "steps.parquet", "anatomy.parquet"])
def test_damaged_table_is_named_in_a_sentence(name, published, tmp_path):
    folder = shutil.copytree(published, tmp_path / "run")
    chance = random.Random(name)
    refused = 0
    for damage in (torn, overwritten, flipped) * 10:
        shutil.copy(published / name, folder / name)
        damage(folder / name, chance)
        with only_errors_naming(folder / name, UnreadableRunError) as errors:
            api.load(folder).recommend()
            anatomies_of(folder)
        assert errors or damage is not flipped
        refused += len(errors)
        status, text = run_verb(recommend.main, str(folder))
        assert status in (0, 2)
        assert "Traceback" not in text
    assert refused >= 20


def test_foreign_table_is_named_in_a_sentence(tmp_path):
    parquet.write(pyarrow.table({"a": [1]}), tmp_path / "trials.parquet")
    status, text = run_verb(report.main, str(tmp_path), "--no-browser")
    assert (status, text) == (
        2,
        f"{tmp_path}/trials.parquet is no table of this program: it has no column trial_id\n",
    )


@pytest.mark.parametrize("main", [report.main, recommend.main], ids=["report", "recommend"])
@pytest.mark.parametrize("what", ["a file", "nothing", "an empty folder", "a loop"])
def test_verb_on_something_else_names_its_path(main, what, tmp_path):
    path = tmp_path / "run"
    match what:
        case "a file":
            path.write_text("no run")
        case "an empty folder":
            path.mkdir()
        case "a loop":
            path.symlink_to("run")
    status, text = run_verb(main, str(path))
    assert status == 2
    assert text.count("\n") == 1
    assert str(path) in text


IMPOSSIBLE = (
    (Path(__file__).parents[2] / "golden" / "impossible_values.txt").read_text().splitlines()[1:]
)


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_sound_table_with_impossible_values_is_named(case, published, tmp_path):
    ((column, value),) = json.loads(case).items()
    folder = shutil.copytree(published, tmp_path / "run")
    path = folder / "trials.parquet"
    table = pyarrow.parquet.read_table(path)
    index = table.schema.get_field_index(column)
    values = pyarrow.array([value] * table.num_rows)
    table = table.set_column(index, pyarrow.field(column, values.type), values)
    pyarrow.parquet.write_table(table, path)
    for main in (report.main, recommend.main):
        status, text = run_verb(main, str(folder))
        assert status == 2
        assert str(path) in text
        assert text.count("\n") == 1
