"""Generates the code of train.py that makes the model, and reads or draws its data."""

import dataclasses
from typing import Any, get_args, get_type_hints

from jobs.spec import (
    DatasetFile,
    DataSpec,
    Distribution,
    ModelSpec,
    RowLengthDistribution,
    SyntheticData,
    TrialSpec,
)
from jobs.tasks import AUTO_CLASSES, text_class
from orchestrator.export.generated_code import (
    Code,
    NotExportableError,
    arguments,
    dtype,
    keyword_argument,
    keywords,
    known,
    literal,
)
from orchestrator.export.source_lifting import lifted

_SUPPORTED = frozenset({"path", "format", "columns", "tokenizer", "max_length", "max_tokens"})
"""Fields of ``DatasetFile`` that train.py can use."""


def data_code(data: DataSpec, model: ModelSpec) -> dict[str, Any]:
    """The values that the template needs for ``make_dataset``. Raises NotExportableError if a value
    is not a plain literal, if the data are not in a local file, or if the trial read the file in a
    way that train.py cannot."""
    if data.file is None and data.synthetic is None:
        raise NotExportableError("the row does not say what data it was measured on")
    return {
        "file": _file(data.file),
        "synthetic": _synthetic(data.synthetic),
        "task_literal": literal(model.task),
        "model_config": literal(dict(model.config)),
    }


def _file(file: DatasetFile | None) -> dict[str, Any] | None:
    if file is None:
        return None
    _check_fields(file)
    # Refuse URLs, because the training would read whatever another machine serves.
    if "://" in file.path or "::" in file.path:
        raise NotExportableError(f"{file.path!r} is not a local path")
    # Allow only the formats of the type, because ``load_dataset`` also takes names on the Hub.
    formats = get_args(get_type_hints(DatasetFile)["format"])
    file_format = str(known(file.format, formats, "a format of data files"))
    return {
        "format": literal(file_format),
        "path": literal(file.path),
        "columns": literal(dict(file.columns)),
        "tokenizer": literal(file.tokenizer),
        "max_length": literal(int(file.max_length)),
        "max_tokens": literal(file.max_tokens),
    }


def _check_fields(file: DatasetFile) -> None:
    for declared in dataclasses.fields(file):
        value = getattr(file, declared.name)
        # An empty value means that the field is not used.
        if declared.name in _SUPPORTED or value == declared.default or not value:
            continue
        raise NotExportableError(
            f"the data were read with {declared.name}, which the exported files cannot do"
        )


def _synthetic(synthetic: SyntheticData | None) -> dict[str, Any] | None:
    if synthetic is None:
        return None
    lengths = synthetic.lengths
    values: dict[str, Any] = {
        "sequence_length": int(synthetic.sequence_length),
        "samples": int(synthetic.samples),
        "padding": float(synthetic.padding),
        "target_length": synthetic.target_length,
        "images": int(synthetic.images),
        "image_size": synthetic.image_size,
        "seconds": synthetic.seconds,
    }
    parts = keywords(values)
    if lengths is not None:
        parts.append(keyword_argument("lengths", _lengths(lengths)))
    return {
        "imports": Code("RowLengthDistribution, SyntheticData" if lengths else "SyntheticData"),
        "arguments": arguments(parts),
        "samples": literal(values["samples"]),
        "is_padded": values["padding"] > 0,
        "is_ragged": lengths is not None,
    }


def _lengths(lengths: RowLengthDistribution) -> Code:
    known(lengths.distribution, get_args(Distribution), "a distribution of lengths")
    numbers = {"mean": float(lengths.mean), "sigma": float(lengths.sigma)}
    named = keywords({"distribution": str(lengths.distribution), **numbers})
    return Code(f"RowLengthDistribution({', '.join(named)})")


def model_code(spec: TrialSpec) -> dict[str, Any]:
    """The values that the template needs for ``model_config`` and ``make_model``."""
    model = spec.model
    is_checkpoint = model.name_or_path is not None
    # A named architecture has no code of its own. A checkpoint's runs only if the command line of
    # train.py allows it, because a run folder may come from a stranger.
    asks = bool(model.trust_remote_code) and is_checkpoint
    trust = Code(f"trust_remote_code={'options.trust_remote_code' if asks else False}")
    if is_checkpoint:
        of_config = [literal(model.name_or_path), trust]
        of_model = [literal(model.name_or_path), Code("config=config"), trust]
        has_own_labels = spec.data.file is not None or "num_labels" in model.config
        if model.task.endswith("-classification") and has_own_labels:
            of_model.append(Code("ignore_mismatched_sizes=True"))
    else:
        of_config = [literal(model.architecture)]
        of_model = [Code("config"), trust]
    kwargs = {"dtype": "float32", **spec.settings.model_kwargs}
    kind = keyword_argument("dtype", dtype(kwargs.pop("dtype")))  # torch's object, no text
    return {
        "task": known(model.task, AUTO_CLASSES, "a task"),
        "auto_class": Code(AUTO_CLASSES[model.task]),
        "text_class": lifted(text_class),
        "is_checkpoint": is_checkpoint,
        "asks_for_remote_code": asks,
        "config_arguments": arguments([*of_config, *keywords(model.config)]),
        "model_arguments": arguments([*of_model, kind, *keywords(kwargs)]),
    }
