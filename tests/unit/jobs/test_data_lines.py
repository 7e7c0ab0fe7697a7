"""The first bad line of a data file is named with its cause, in the dry run and by a trial."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.data_lines import first_fault
from jobs.spec import DatasetFile, ModelSpec
from jobs.trial.data import user_file
from orchestrator.planning.prechecks.data_columns import data_problems
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration
from tests.support.word_tokenizer import save_word_tokenizer

GOOD = b'{"text": "good film", "label": 1}'
CELLS = b"text,label\n" + b"good film,1\n" * 1500


def lines(bad: bytes, number: int = 1203) -> bytes:
    """So many lines that the dry run's first rows have none of the bad ones."""
    return b"\n".join([*[GOOD] * (number - 1), bad, *[GOOD] * 5, b""])


@pytest.mark.parametrize(
    ("content", "file_format", "fault"),
    [
        (lines(b'{"text": "go'), "json", "line 1,203: no JSON: Unterminated string"),
        (lines(b'{"text": "g\xe9", "label": 0}'), "json", "line 1,203: byte 12 is no UTF-8"),
        (lines(b'["good film"]'), "json", "line 1,203: a list instead of an object"),
        (lines(b'{"label": 1}'), "json", 'line 1,203: nothing in the column "text"'),
        (lines(b'{"text": [], "label": 1}'), "json", "line 1,203: a list in the column"),
        (lines(b'{"text": "a", "label": "x"}'), "json", "line 1,203: a text in the column"),
        (lines(b"\n" + GOOD + b"}"), "json", "line 1,204: no JSON: Extra data"),
        (CELLS + b"a,1,2\n", "csv", "line 1,502: 3 cells, and the header has 2"),
        (CELLS + b",1\n", "csv", 'line 1,502: nothing in the column "text"'),
    ],
)
def test_a_bad_line_is_named_by_file_line_and_cause(tmp_path, content, file_format, fault):
    path = tmp_path / "rows"
    path.write_bytes(content)
    tokenizer = save_word_tokenizer(tmp_path / "words")
    file = DatasetFile(path=str(path), format=file_format, tokenizer=tokenizer)
    task = "sequence-classification"
    configuration = ModelConfiguration.of(ModelSpec(task=task, architecture="bert"))
    found = [problem for _, problem in data_problems(file, task, configuration)]
    assert len(found) == 1
    assert found[0].startswith(f"{path}, {fault}")
    config: Any = SimpleNamespace(vocab_size=32, num_labels=2)
    with pytest.raises(ValueError, match=re.escape(found[0])):
        user_file.read(file, task, config)


def test_rows_may_lack_what_their_first_one_lacks_too(tmp_path: Path):
    path = tmp_path / "rows"
    later = ['{"text": "b", "label": 2, "note": 1}', '{"text": "", "note": "x"}']
    path.write_text("\n".join(['{"text": "a"}', *later]))
    assert first_fault(str(path), "json", {}) == ""
    assert first_fault(str(path), "json", {}, most_bytes=5) == ""
