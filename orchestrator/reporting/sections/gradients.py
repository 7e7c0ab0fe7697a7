"""Whether the gradients of picks agree with the same weights in fp32, tensor by tensor."""

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.gradient_results import GradientResult
from orchestrator.reporting.configurations import CONFIGURATION, TRIAL
from orchestrator.reporting.content import Column, Content, Format, Row, Table
from orchestrator.reporting.flags import percent
from orchestrator.units import count

FORMATS = {"float32": "fp32", "tf32": "TF32", "float16": "fp16", "bfloat16": "bf16"}
"""Number format of a comparison -> its name in sentences."""
_COLUMNS = (
    CONFIGURATION,
    Column(key="verdict", heading="gradients"),
    Column(key="tensors", heading="tensors", format=Format.COUNT),
    Column(key="format", heading="format"),
    Column(key="typical", heading="median error"),
    Column(key="worst", heading="tensor nearest its bound"),
    Column(key="error", heading="its error"),
    Column(key="bound", heading="explained"),
    TRIAL,
)


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """A row for each pick whose gradients were compared; None if none were."""
    rows, notes = [], []
    for own in results.configurations:
        for trial_id in own.trial_ids:
            result = results.gradient_results.get(trial_id)
            if result is not None:
                rows.append(_row(dataset, own, result))
            if result is not None and result.differs:
                notes.append(f"{dataset.pick_label(own)}: {sentence(result)}.")
    if not rows:
        return None
    return Content(
        title="Gradients of the picks",
        text=(
            "The gradients of one step without dropout, compared with those of the same weights "
            "and samples in fp32 with plain attention; errors are relative to the norm of each "
            "tensor's gradient.",
            "“explained” is the largest error that rounding to the number format explains there.",
        ),
        tables=(Table(columns=_COLUMNS, rows=tuple(rows)),),
        notes=tuple(notes),
    )


def _row(dataset: Dataset, configuration: Configuration, result: GradientResult) -> Row:
    row = {
        "configuration": dataset.pick_label(configuration),
        "trial_id": result.trial_id,
        "verdict": f"not checked: {result.missing}",
    }
    check = result.check
    if check is None:
        return row
    return {
        **row,
        "verdict": "agree" if check.agrees else "differ",
        "tensors": check.tensors,
        "format": FORMATS[check.number_format],
        "typical": percent(check.typical),
        "error": percent(check.error),
        "bound": percent(check.bound),
        "worst": check.worst,
        "cosine": check.cosine,
        "unresolved": check.unresolved,
    }


def sentence(result: GradientResult) -> str:
    """What a comparison found: ``gradients agree in all 197 tensors, worst 0.4 %, ...``."""
    check = result.check
    if check is None:
        return f"gradients not checked: {result.missing}"
    name = FORMATS[check.number_format]
    explained = f"{percent(check.error)} where {name} explains {percent(check.bound)}"
    if check.agrees:
        tensors = count(check.tensors, "tensor")
        return f"gradients agree in all {tensors}, worst {explained} ({check.worst})"
    return (
        f"gradients differ: {check.worst} by {explained}, so it is not recommended, and the next "
        "best takes its place"
    )
