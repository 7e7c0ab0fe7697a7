"""A ``TrialSpec`` read back from its JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.spec.follow_up import FollowUp, Purpose
from jobs.spec.measure import MeasureSpec, MemoryCap
from jobs.spec.model_and_data import (
    DatasetFile,
    DataSpec,
    ModelSpec,
    RowLengthDistribution,
    SyntheticData,
)
from jobs.spec.recipe import TrainingRecipe
from jobs.spec.settings import Hook, LibrarySettings, Needs
from jobs.spec.trial import TrialSpec
from jobs.spec.user_code import UserCode


def spec_from_json(raw: Mapping[str, Any]) -> TrialSpec:
    """The inverse of ``to_json`` for a ``TrialSpec``.

    Raises KeyError or TypeError on a foreign document.
    """
    parsed = {
        "model": ModelSpec(**raw["model"]),
        "data": data_from_json(raw["data"]),
        "settings": _settings_from_json(raw["settings"]),
        "measure": _measure_from_json(raw["measure"]),
        "needs": Needs(**raw["needs"]),
        "training_recipe": TrainingRecipe.of(raw["training_recipe"]),
        "follow_up": _follow_up_from_json(raw.get("follow_up")),
        "own_code": None,
    }
    if raw.get("own_code"):
        parsed["own_code"] = user_code_from_json(raw["own_code"])
    return TrialSpec(**{**raw, **parsed})


def user_code_from_json(raw: Mapping[str, Any]) -> UserCode:
    """The inverse of ``to_json`` for an ``UserCode``. Raises TypeError for anything but texts."""
    own = UserCode(**{**raw, "callbacks": tuple(raw.get("callbacks", ()))})
    for text in (*own.names, own.folder, own.digest):
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is not a text")
    return own


def data_from_json(raw: Mapping[str, Any]) -> DataSpec:
    """The inverse of ``to_json`` for a ``DataSpec``. Raises KeyError or TypeError."""
    synthetic = None
    if raw["synthetic"]:
        lengths = raw["synthetic"].get("lengths")
        if lengths:
            lengths = RowLengthDistribution(**lengths)
        synthetic = SyntheticData(**{**raw["synthetic"], "lengths": lengths or None})
    file = None
    if raw["file"]:
        file = DatasetFile(**raw["file"])
    return DataSpec(synthetic=synthetic, file=file)


def _settings_from_json(raw: Mapping[str, Any]) -> LibrarySettings:
    parsed = {
        "hooks": {place: Hook(**hook) for place, hook in raw["hooks"].items()},
        "requires": tuple(raw["requires"]),
        "builds": tuple(raw["builds"]),
    }
    return LibrarySettings(**{**raw, **parsed})


def _measure_from_json(raw: Mapping[str, Any]) -> MeasureSpec:
    cap = raw.get("memory_cap")
    if cap:
        cap = MemoryCap(**cap)
    return MeasureSpec(**{**raw, "memory_cap": cap or None})


def _follow_up_from_json(raw: Mapping[str, Any] | None) -> FollowUp | None:
    if raw is None:
        return None
    parsed = {
        "purpose": Purpose(raw["purpose"]),
        "compared_with": tuple(raw["compared_with"]),
    }
    return FollowUp(**{**raw, **parsed})
