"""The kernels of a step, from the traced parts that it repeats."""

import json

from jobs.spec import TrialSpec, to_json
from orchestrator.prediction.affine_stream import Stream
from orchestrator.prediction.operations import StepWork

UPDATE_ARGUMENTS = ("optim", "optim_args", "max_grad_norm", "learning_rate", "weight_decay")
"""Training arguments of the optimizer's step."""


def step_of(
    spec: TrialSpec, first: Stream, later: Stream | None, update: Stream, tokens: int
) -> StepWork:
    """``first`` is a step's first micro-batch, and ``later`` any other one; both have ``tokens`` in
    a row."""
    repeated = first.forward * repeated_share(spec)
    eager, compiled = first.work + update.work, first.compiled + repeated + update.work
    if later is not None:
        eager += later.work * (spec.accumulation - 1)
        compiled += (later.compiled + repeated) * (spec.accumulation - 1)
    return StepWork(
        eager=eager,
        compiled=compiled,
        samples=spec.effective_batch,
        tokens=spec.effective_batch * tokens,
        formats=formats(spec),
    )


def formats(spec: TrialSpec) -> dict[str, str]:
    """Number format of a trace -> the one that computes."""
    return {"fp32": "tf32"} if spec.settings.training_arguments.get("tf32") else {}


def repeated_share(spec: TrialSpec) -> float:
    """Share of the forward products that compiled code repeats to keep a budget of activations.

    The partition repeats what costs least for its bytes first. If the cost of the next byte rises
    evenly, what is repeated grows with the square of the share that is not kept.
    """
    partitioner = spec.settings.hooks.get("partitioner")
    return 0.0 if partitioner is None else float(1 - partitioner.arguments["budget"]) ** 2


def update_key(spec: TrialSpec) -> str:
    """Equal for trials of a model with the same update."""
    given = spec.settings.training_arguments
    arguments = {name: given[name] for name in UPDATE_ARGUMENTS if name in given}
    hook = to_json(spec.settings.hooks.get("optimizer"))
    return json.dumps([arguments, hook], sort_keys=True)
