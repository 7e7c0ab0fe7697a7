"""Checks sequence lengths against the number of positions of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.planning.prechecks.configuration_class import (
    ConfigurationClass,
    configuration_class,
)

_POSITIONS = "max_position_embeddings"


def usable_positions(model_type: str, given: Mapping[str, Any]) -> int | None:
    """Tokens that a sequence may have, with ``given`` keys of the configuration.

    None if the model has no table of positions (T5), may go beyond what it was trained for
    (rotary positions), or is not known.
    """
    described_class = configuration_class(model_type)
    if described_class is None or "rope_parameters" in described_class.keys:
        return None
    positions = described_class.value(_POSITIONS, given)
    if not described_class.model.get("has_position_table") or not isinstance(positions, int):
        return None
    if described_class.model["counts_from_padding"]:
        # The first token has the position after the padding token's.
        positions -= _padding_token(described_class, given) + 1
    return positions


def trained_positions(model_type: str, given: Mapping[str, Any]) -> int | None:
    """Tokens that a model with rotary positions was made for; None for every other."""
    described_class = configuration_class(model_type)
    if described_class is None or "rope_parameters" not in described_class.keys:
        return None
    positions = described_class.value(_POSITIONS, given)
    if not isinstance(positions, int):
        return None
    return positions


def _padding_token(described_class: ConfigurationClass, given: Mapping[str, Any]) -> int:
    token = described_class.value("pad_token_id", given)
    if not isinstance(token, int):
        return 0
    return token
