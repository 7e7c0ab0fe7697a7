"""The user's own TrainingArguments and DeepSpeed file: what every trial starts from, checked against the axes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from jobs.spec import Choice
from jobs.techniques import AXES, Variant
from orchestrator.planning.arguments import argument_names, owned_arguments, runner_reason
from orchestrator.planning.axes import ACCUMULATION, EFFECTIVE_BATCH
from orchestrator.planning.document import Part
from orchestrator.planning.problems import Problem, advice, described

CUSTOM = "custom"
"""The choice on an axis that the user's own arguments or DeepSpeed file decide."""
DEFAULT = "default"
"""The choice on an argument's axis where a trial leaves the argument to TrainingArguments."""

_OFFLOADS = ("offload_optimizer", "offload_param")


def argument_problems(part: Part, used: Collection[str]) -> Iterator[Problem]:
    """What is wrong with the user's training arguments, given the axes that the sweep uses."""
    known = argument_names()
    for name, value in part.value.items():
        owner = owned_arguments().get(name, name)
        if owner == ACCUMULATION and EFFECTIVE_BATCH in used:
            owner = EFFECTIVE_BATCH
        if reason := runner_reason(name):
            yield part.problem((name,), f"the runner decides this argument; {reason}")
        elif known is not None and name not in known:
            yield part.problem(
                (name,), f"TrainingArguments has no such field; {advice(name, sorted(known))}"
            )
        elif owner in used:
            yield part.problem(
                (name,), f'contradicts the axis "{owner}", which sets it; remove one of them'
            )
        elif (
            owner in AXES
            and AXES[owner].integer_argument
            and not (type(value) is int and value > 0)
        ):
            yield part.problem((name,), f"must be an integer from 1, not {described(value)}")


def deepspeed_problems(part: Part, used: Collection[str]) -> Iterator[Problem]:
    """What in the user's DeepSpeed file would contradict the trial's arguments."""
    for name in (
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
    ):
        if part.value.get(name, "auto") != "auto":
            yield part.problem(
                (name,), "must be auto: the axes micro_batch and accumulation decide it"
            )
    for name in ("bf16", "fp16"):
        section = part.value.get(name)
        if (
            isinstance(section, dict)
            and section.get("enabled", "auto") != "auto"
            and "precision" in used
        ):
            yield part.problem((name, "enabled"), 'must be auto: the axis "precision" decides it')
    zero = part.value.get("zero_optimization")
    sections = (
        {"": zero, **{key: zero.get(key) for key in _OFFLOADS}}
        if isinstance(zero, dict)
        else {"": zero}
    )
    for key, section in sections.items():
        if not isinstance(section, (dict, type(None))):
            at = ("zero_optimization", key) if key else ("zero_optimization",)
            yield part.problem(at, f"must be a mapping, not {described(section)}")
    if "optimizer" in part.value and "optimizer" in used:
        yield part.problem(("optimizer",), 'contradicts the axis "optimizer"; remove one of them')


def base_choices(
    arguments: Mapping[str, Any], deepspeed: Mapping[str, Any] | None
) -> dict[str, Choice]:
    """The choice on every technique axis where the sweep names none: the user's own, or the axis's default."""
    choices: dict[str, Choice] = {name: axis.default for name, axis in AXES.items()}
    for argument, owner in owned_arguments().items():
        if argument in arguments:
            choices[owner] = arguments[argument] if AXES[owner].integer_argument else CUSTOM
    if deepspeed is not None:
        choices["offload"] = CUSTOM
        if "optimizer" in deepspeed:
            choices["optimizer"] = CUSTOM
    return choices


def deepspeed_variant(config: Mapping[str, Any]) -> Variant:
    """The user's DeepSpeed file as a row of the offload axis, so that rules, needs and preparations read it."""
    section = config.get("zero_optimization") or {}
    stage = section.get("stage", 0)
    devices = {
        part: (section.get(f"offload_{part}") or {}).get("device")
        for part in ("optimizer", "param")
    }
    optimizer, parameters = (devices[part] in ("cpu", "nvme") for part in ("optimizer", "param"))
    prepares = ("cpu_adam",) * optimizer + ("async_io",) * ("nvme" in devices.values())
    return Variant(
        doc="your own DeepSpeed file",
        deepspeed=config,
        requires=("package:deepspeed", *(f"deepspeed_op:{op}" for op in prepares)),
        prepares=prepares,
        host=optimizer or parameters,
        effect="rounding",
        tags=("deepspeed",)
        + ("offloaded_optimizer",) * optimizer
        + ("zero3",) * (stage == 3)
        + ("zero",) * (stage in (1, 2, 3)),
    )
