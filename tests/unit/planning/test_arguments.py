"""Names read from the source of the installed transformers."""

from __future__ import annotations

import dataclasses

import pytest

from jobs.techniques.axes.activations import RENAMED
from orchestrator.planning.arguments import architecture_names, argument_names


@pytest.mark.slow
def test_names_read_from_the_source_are_the_library_s() -> None:
    transformers = pytest.importorskip("transformers")
    fields = dataclasses.fields(transformers.TrainingArguments)
    fields_to_set = {field.name for field in fields if field.init}
    names = argument_names()
    architectures = architecture_names()
    assert names is not None
    assert fields_to_set <= names
    assert names - fields_to_set <= {*RENAMED, *RENAMED.values()} | {"_VALID_DICT_FIELDS"}
    assert architectures is not None
    assert set(transformers.CONFIG_MAPPING.keys()) <= architectures
