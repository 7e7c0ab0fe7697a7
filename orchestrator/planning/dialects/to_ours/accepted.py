"""Leaves out of a configuration what a sweep would refuse of the user's own keys."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from orchestrator.planning.config import ConfigError, load_config
from orchestrator.planning.plan import plan
from orchestrator.planning.prechecks.images import image_problems
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration

_OWN = ("model.config.", "training_arguments.", "deepspeed.")
"""Beginnings of keys that are the user's own, as their files have them."""


def accepted(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, str], str]:
    """The configuration without the user's own keys that a sweep would refuse, why it would, and
    why no trial of what is left could run; empty if one could."""
    try:
        config = load_config(document)
        planned = plan(config)
    except ConfigError as error:
        # A key that was right in its own file is no misspelt one of ours.
        why = {one.key: one.message.partition("; ")[0] for one in error.problems}
        refused = {key: why[key] for key in why if key.startswith(_OWN)}
        if refused:
            document, others, problem = accepted(_without(document, refused))
            return document, {**refused, **others}, problem
        return document, {}, "; ".join(f"{key}: {one}" for key, one in why.items())
    for _, message in image_problems(config, ModelConfiguration.of(config.model)):
        return document, {}, message
    return document, {}, "" if planned.trials else planned.ruled_out[0].reason


def _without(inside: Mapping[str, Any], keys: Collection[str], at: str = "") -> dict[str, Any]:
    return {
        name: _without(value, keys, f"{at}{name}.") if isinstance(value, Mapping) else value
        for name, value in inside.items()
        # A problem of a list's item is that of the list.
        if not any(re.fullmatch(rf"{re.escape(at + str(name))}(\[.*)?", key) for key in keys)
    }
