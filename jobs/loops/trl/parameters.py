"""The settings of TRL's configuration classes that a technique may set. TRL is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.errors import UnsupportedError
from jobs.techniques.axes.fine_tuning.preferences import PREFERENCE_TRAINERS, contradiction

ALLOWED = frozenset(
    {
        "activation_offloading",
        "assistant_only_loss",
        "completion_only_loss",
        "dataset_num_proc",
        "eos_token",
        "loss_type",
        "packing_strategy",
        "pad_to_multiple_of",
        "router_aux_loss_coef",
        "shuffle_dataset",
    }
)
"""The parameters of ``SFTConfig`` that a trial may set. Another user's record cannot set others."""
ROW_PARAMETERS = frozenset(
    {
        "assistant_only_loss",
        "completion_only_loss",
        "dataset_num_proc",
        "eos_token",
        "shuffle_dataset",
    }
)
"""Parameters that only the preparation of rows reads. They are not passed to the Trainer."""
_STRATEGIES = ("bfd", "bfd_split")


def checked(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``parameters`` of ``SFTConfig``, if a trial may set all of them.

    Raises ValueError for one that it may not set, and UnsupportedError for a packing strategy in
    which rows attend to each other.
    """
    refused = sorted(parameters.keys() - ALLOWED)
    if refused:
        raise ValueError(f"SFTConfig's parameter {refused[0]} may not be set here")
    strategy = parameters.get("packing_strategy", "bfd")
    if strategy not in _STRATEGIES:
        raise UnsupportedError(
            "packing_strategy",
            f"with TRL's packing strategy {strategy}, rows of a block attend to each other; "
            f"strategies that keep rows apart: {', '.join(_STRATEGIES)}",
        )
    return dict(parameters)


def checked_preferences(trainer: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``parameters`` of a preference trainer, if a trial may set all of them.

    Raises ValueError for an unknown trainer, for a parameter that a trial may not set, and for
    parameters that contradict each other.
    """
    if trainer not in PREFERENCE_TRAINERS:
        raise ValueError(f"{trainer!r:.40} is not a preference trainer")
    known = PREFERENCE_TRAINERS[trainer]
    refused = sorted(parameters.keys() - known.allowed)
    if refused:
        raise ValueError(f"{known.config}'s parameter {refused[0]} may not be set here")
    problem = contradiction(parameters)
    if problem:
        raise ValueError(problem)
    return dict(parameters)


def in_one_line(error: Exception) -> str:
    """TRL's error message in one line."""
    return " ".join(str(error).split())
