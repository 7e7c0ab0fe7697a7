"""What is known of a trial that is not traced: bounds, from the same trial without a technique."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.spec import Hook, TrialSpec
from orchestrator.prediction.intervals import SMALLEST_CONTEXT_BYTES
from orchestrator.prediction.prediction import Bounds, Prediction
from orchestrator.prediction.time.operations import StepWork
from orchestrator.prediction.unsupported import kept_on_host, unpredictable


@dataclass(frozen=True, kw_only=True, slots=True)
class _Technique:
    """A technique without which a trial can be traced, and what remains the same without it."""

    hooks: Mapping[str, Hook | None] = field(default_factory=dict)
    """Place of its hook -> the hook that a trial gets there instead."""
    arguments: Mapping[str, str | None] = field(default_factory=dict)
    """What its training arguments begin with -> the value that a trial gets instead."""
    kwargs: tuple[str, ...] = ()
    """Arguments of the model that are left to its defaults."""
    applies: Callable[[TrialSpec], bool] = lambda _: True
    only_saves: bool = False
    """Whether a trial takes no more memory with it than without it."""
    weights: float = 1.0
    """The least share of the weights that remains with it."""
    is_engine: bool = False
    """Whether it is DeepSpeed's engine."""
    is_compiler: bool = False
    """Whether it fuses the kernels of a step, and changes nothing else of its time."""

    def dropped_from(self, spec: TrialSpec) -> TrialSpec:
        if not self.applies(spec):
            return spec
        settings = spec.settings
        hooks = _without(settings.hooks, self.hooks)
        arguments = _without(settings.training_arguments, self.arguments)
        kwargs = {
            name: value for name, value in settings.model_kwargs.items() if name not in self.kwargs
        }
        settings = replace(settings, hooks=hooks, training_arguments=arguments, model_kwargs=kwargs)
        if self.is_engine:
            settings = replace(settings, deepspeed=None)
        return replace(spec, settings=settings)


def _without(given: Mapping[Any, Any], instead: Mapping[str, Any]) -> dict[Any, Any]:
    """The values of other names, and those that are given instead, except None."""
    kept = {name: own for name, own in given.items() if not name.startswith(tuple(instead))}
    return {**kept, **{name: own for name, own in instead.items() if own is not None}}


def _generates_code(spec: TrialSpec) -> bool:
    """Whether the compiler fuses kernels: Inductor does, the debugging backends do not."""
    arguments, regions = spec.settings.training_arguments, spec.settings.hooks.get("regions")
    if regions is not None:
        return bool(regions.arguments["backend"] == "inductor")
    backend = arguments.get("torch_compile_backend") or "inductor"
    return bool(arguments.get("torch_compile")) and backend == "inductor"


def _keeps_weights(spec: TrialSpec) -> bool:
    """Whether DeepSpeed's engine holds all weights on one GPU."""
    return spec.world_size == 1 and "param" not in kept_on_host(spec)


_IN_16_BITS = Hook("bf16_base")
_TRAINER = Hook("trainer_loop")
_WITHOUT_STATES = {"optim_": None, "optim": "sgd"}
_TECHNIQUES = (
    # No recorded trial with compiled blocks takes more memory than without.
    _Technique(hooks={"regions": None}, only_saves=True, is_compiler=True),
    # A mask keeps compiled models from fused attention: up to 2.3 times the memory was recorded.
    _Technique(hooks={"compiler": None}, arguments={"torch_compile": None}, is_compiler=True),
    _Technique(arguments={"torch_empty_cache_steps": None}, only_saves=True),
    # Four bits of each weight of 16, or more.
    _Technique(
        hooks={"base": _IN_16_BITS},
        applies=lambda spec: "base" in spec.settings.hooks,
        weights=0.25,
    ),
    _Technique(hooks={"layers": None, "linears": None, "rounding": None, "loss": None}),
    _Technique(hooks={"checkpointing": None}),
    _Technique(hooks={"kernels": None}, kwargs=("attn_implementation", "experts_implementation")),
    # A plain training of the same model: TRL's own losses need no less.
    _Technique(hooks={"rows": None, "preferences": None, "arguments": None, "loop": _TRAINER}),
    # Plain SGD has no states, so nothing but the weights is counted.
    _Technique(arguments=_WITHOUT_STATES),
    # The engine may have weights of 16 bits in place of 32.
    _Technique(arguments=_WITHOUT_STATES, applies=_keeps_weights, weights=0.5, is_engine=True),
    _Technique(hooks={"model": None}, arguments=_WITHOUT_STATES),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Simpler:
    """A trial without techniques that are not traced."""

    spec: TrialSpec
    only_save: bool = True
    """Whether the techniques only save memory."""
    weights: float = 1.0
    """The least share of the weights that remains with them."""
    is_compiled: bool = False
    only_compile: bool = True
    """Whether the time of a step is known: a compiler fuses its kernels, or nothing is changed."""

    @property
    def holds_only(self) -> bool:
        """Whether weights and optimizer states alone bound it, in one process."""
        is_alone = self.spec.world_size == 1 and self.spec.settings.deepspeed is None
        return is_alone and not self.only_save and not self.only_compile

    def step(self, traced: StepWork | None) -> StepWork | None:
        """The kernels of the trial itself, from those of the simpler one."""
        if traced is None or not self.only_compile:
            return None
        return replace(traced, is_compiled=self.is_compiled)


def traceable(spec: TrialSpec) -> Simpler:
    """The trial without as few techniques as it takes to trace it, in the order of the table."""
    simpler = Simpler(spec=spec)
    for technique in _TECHNIQUES:
        if not unpredictable(simpler.spec):
            break
        without = technique.dropped_from(simpler.spec)
        if without != simpler.spec:
            simpler = Simpler(
                spec=without,
                only_save=simpler.only_save and technique.only_saves,
                weights=simpler.weights * technique.weights,
                is_compiled=technique.is_compiler or simpler.is_compiled,
                only_compile=simpler.only_compile
                and technique.is_compiler
                and _generates_code(spec),
            )
    if unpredictable(simpler.spec):
        return replace(simpler, only_save=False, only_compile=False)
    return simpler


def bounded(prediction: Prediction, reason: str, simpler: Simpler) -> Prediction:
    """What the prediction of a simpler trial says of the trial with the techniques."""
    bounds = None
    if prediction.device is not None and prediction.elsewhere is not None:
        weights = simpler.weights * prediction.anatomy.get("weights", 0)
        states = prediction.anatomy.get("optimizer states", 0)
        most = max(prediction.device.most, prediction.elsewhere.high)
        least = int(weights) + states + SMALLEST_CONTEXT_BYTES
        bounds = Bounds(least=least, most=most if simpler.only_save else None)
    return Prediction(
        trial_id=prediction.trial_id,
        choices=prediction.choices,
        unknown=reason,
        refused=prediction.refused,
        bounds=bounds,
        step=simpler.step(prediction.step),
        needs_ampere=prediction.needs_ampere,
    )
