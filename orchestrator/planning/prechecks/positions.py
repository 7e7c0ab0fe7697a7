"""Checks sequence lengths against the number of positions of a model, read from its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.planning.arguments import sources
from orchestrator.planning.prechecks.configuration_class import (
    ConfigurationClass,
    configuration_class,
)

_POSITIONS = "max_position_embeddings"
_TABLE = re.compile(
    rf"Embedding\(\s*config\.({_POSITIONS}|n_positions)\b|max_positions = config\.{_POSITIONS}\b"
)
"""A model with a table of positions, which ends where the configuration says."""
_OFFSET = re.compile(r"create_position_ids_from_input_ids")
"""RoBERTa and its relatives count positions from the padding token's id on."""


def usable_positions(model_type: str, given: Mapping[str, Any]) -> int | None:
    """Tokens that a sequence may have, with ``given`` keys of the configuration.

    None if the model has no table of positions (T5), may go beyond what it was trained for
    (rotary positions), or cannot be read.
    """
    described_class = configuration_class(model_type)
    if described_class is None or "rope_parameters" in described_class.keys:
        return None
    text = "".join(sources(f"models/{described_class.module}", "modeling_*.py"))
    positions = described_class.value(_POSITIONS, given)
    if not _TABLE.search(text) or not isinstance(positions, int):
        return None
    if _OFFSET.search(text):
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
