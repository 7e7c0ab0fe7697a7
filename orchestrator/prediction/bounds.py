"""What is known of a trial that is not traced: bounds, from the same trial without a technique."""

from dataclasses import dataclass, replace

from jobs.spec import TrialSpec
from orchestrator.prediction.intervals import SMALLEST_CONTEXT_BYTES
from orchestrator.prediction.prediction import Bounds, Prediction
from orchestrator.prediction.unsupported import unpredictable


@dataclass(frozen=True, kw_only=True, slots=True)
class _Technique:
    """A technique without which a trial keeps its weights and its optimizer's states."""

    hooks: tuple[str, ...] = ()
    """Places of its hooks."""
    arguments: str = "\0"
    """What its training arguments begin with."""
    only_saves: bool = False
    """Whether a trial takes no more memory with it than without it."""

    def dropped_from(self, spec: TrialSpec) -> TrialSpec:
        settings = spec.settings
        hooks = {place: own for place, own in settings.hooks.items() if place not in self.hooks}
        arguments = {
            name: value
            for name, value in settings.training_arguments.items()
            if not name.startswith(self.arguments)
        }
        settings = replace(settings, hooks=hooks, training_arguments=arguments)
        return replace(spec, settings=settings)


_TECHNIQUES = (
    # No recorded trial with compiled blocks takes more memory than without.
    _Technique(hooks=("regions",), only_saves=True),
    # A mask keeps compiled models from fused attention: up to 2.3 times the memory was recorded.
    _Technique(hooks=("compiler",), arguments="torch_compile"),
    _Technique(arguments="torch_empty_cache_steps", only_saves=True),
    _Technique(hooks=("layers", "linears", "loss")),
)


def traceable(spec: TrialSpec) -> tuple[TrialSpec, bool]:
    """The trial without techniques, until it can be traced, and whether these only save memory."""
    only_save = True
    for technique in _TECHNIQUES:
        if not unpredictable(spec):
            break
        without = technique.dropped_from(spec)
        only_save &= technique.only_saves or without == spec
        spec = without
    return spec, only_save


def bounded(prediction: Prediction, reason: str, *, only_save: bool) -> Prediction:
    """What a prediction without techniques says of the trial with them."""
    bounds = None
    if prediction.device is not None and prediction.elsewhere is not None:
        kept = (prediction.anatomy.get(kind, 0) for kind in ("weights", "optimizer states"))
        most = max(prediction.device.high, prediction.elsewhere.high)
        least = sum(kept) + SMALLEST_CONTEXT_BYTES
        bounds = Bounds(least=least, most=most if only_save else None)
    return Prediction(
        trial_id=prediction.trial_id,
        choices=prediction.choices,
        unknown=reason,
        refused=prediction.refused,
        bounds=bounds,
        needs_ampere=prediction.needs_ampere,
    )
