"""The settings of TRL's configuration classes that a technique may set. TRL is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.errors import UnsupportedError
from jobs.techniques.axes.fine_tuning.preferences import PREFERENCE_TRAINERS, contradiction

TAKEN = frozenset(
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
"""The parameters that a trial may set. A record from a stranger cannot set others."""
OF_ROWS = frozenset(
    {
        "assistant_only_loss",
        "completion_only_loss",
        "dataset_num_proc",
        "eos_token",
        "shuffle_dataset",
    }
)
"""Parameters for the preparation of rows. The Trainer gets prepared rows, so it does not get these.
"""
_STRATEGIES = ("bfd", "bfd_split")


def checked(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters. Raises ValueError for one that a trial may not set.

    Raises UnsupportedError for a packing in which rows attend to each other.
    """
    refused = sorted(parameters.keys() - TAKEN)
    if refused:
        raise ValueError(f"SFTConfig's parameter {refused[0]} is not taken")
    strategy = parameters.get("packing_strategy", "bfd")
    if strategy not in _STRATEGIES:
        raise UnsupportedError(
            "packing_strategy",
            f"TRL's packing strategy {strategy} lets rows of a block attend to each other, and "
            f"batching keeps them apart; those that do: {', '.join(_STRATEGIES)}",
        )
    return dict(parameters)


def checked_preferences(trainer: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a preference trainer.

    Raises ValueError for an unknown trainer, for a parameter that a trial may not set, and for
    parameters that contradict each other.
    """
    if trainer not in PREFERENCE_TRAINERS:
        raise ValueError(f"{trainer!r:.40} is not a preference trainer")
    known = PREFERENCE_TRAINERS[trainer]
    refused = sorted(parameters.keys() - known.taken)
    if refused:
        raise ValueError(f"{known.config}'s parameter {refused[0]} is not taken")
    problem = contradiction(parameters)
    if problem:
        raise ValueError(problem)
    return dict(parameters)


def in_one_line(error: Exception) -> str:
    """TRL's error message in one line."""
    return " ".join(str(error).split())
