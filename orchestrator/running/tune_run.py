"""Runs ``tune``: ``search: best`` over the configurations of ``planning.tune_space``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.node import nvml
from jobs.trial.requirements import lacks_package
from orchestrator.planning.keys.config_model import FollowUpPolicy
from orchestrator.planning.keys.search_options import TuneOptions
from orchestrator.planning.plan import Plan
from orchestrator.planning.settings import SweepConfig
from orchestrator.planning.tune_space import policy
from orchestrator.planning.tune_space.space import Goal, TuneSpace, tune_space
from orchestrator.planning.tune_space.values import has_equal_rows
from orchestrator.running.early_start import Start
from orchestrator.running.ray_address import is_elsewhere
from orchestrator.units import listed

if TYPE_CHECKING:
    from orchestrator.running.sweep_run import SweepEnd

SEARCH_SHARE = 0.75
"""Share of the GPU time for the search. The rest is for follow-ups, which verify its picks, and for
the search as far as none of them can use it. A compiled pick is compiled again for its cap check,
mostly from the cache of its first trial."""
SEARCH_SHARE_OF_UNEQUAL_ROWS = 0.6
"""The same where rows are of unequal length, because the gain is measured in rounds there."""


def space_of(
    config: SweepConfig, goal: Goal, gpu_seconds: float, *, has_gpu: bool, is_remote: bool
) -> TuneSpace:
    """The space, a search and follow-ups within the GPU time. A cluster may have other packages."""

    # Asked once: each question to NVML takes milliseconds, and many techniques require a GPU.
    capability = None
    if has_gpu and not is_remote:
        capability = max(map(nvml.compute_capability, nvml.visible_uuids()), default=None)

    def is_missing(requirement: str) -> bool:
        needs_gpu = requirement.startswith(("cuda", "capability>=", "fsdp2"))
        is_unmet = not is_remote and _is_unmet_here(requirement, capability)
        return (needs_gpu and not has_gpu) or is_unmet

    space = tune_space(config, goal, has_gpu=has_gpu, is_missing=is_missing)
    is_equal = has_equal_rows(config)
    search_seconds = gpu_seconds * (SEARCH_SHARE if is_equal else SEARCH_SHARE_OF_UNEQUAL_ROWS)
    search = TuneOptions(
        any_recipe=goal.recipe != "own",
        slot_seconds=search_seconds,
        effective_batch=space.effective_batch,
    )
    wanted = config.follow_up
    policy = FollowUpPolicy(
        verify_budgets=wanted.verify_budgets,
        check_gradients=wanted.check_gradients,
        tie_break_rounds=min(2, wanted.tie_break_rounds),
        gain_rounds=3,
        profiles=0,
        slot_share=0.0,
        min_seconds=gpu_seconds - search_seconds,
    )
    return replace(space, config=replace(space.config, search=search, follow_up=policy))


def run_tune(start: Start, goal: Goal, gpu_seconds: float) -> SweepEnd:
    """Search the space of a configuration on every GPU model. Raises what ``run_sweep`` raises."""
    from orchestrator.running.sweep_run import run_sweep

    is_remote = is_elsewhere(start.options.address)

    def make_plan(given: SweepConfig, has_gpu: bool) -> tuple[SweepConfig, Plan]:
        space = space_of(given, goal, gpu_seconds, has_gpu=has_gpu, is_remote=is_remote)
        return space.config, space.plan

    return run_sweep(start, make_plan, verb="tune")


def _is_unmet_here(requirement: str, capability: tuple[int, int] | None) -> bool:
    """Whether this machine lacks a package, version or GPU; ``capability`` is of its newest GPU."""
    # CUDA C++ Programming Guide, compute capabilities: an older GPU would emulate bf16 slowly.
    needed = "capability>=8.0" if requirement == "bf16" else requirement
    subject, _, version = needed.partition(">=")
    if subject == "capability" and capability is not None:
        return capability < tuple(map(int, version.split(".")))
    return lacks_package(requirement)


def not_tried_lines(not_tried: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The values that are not tried: a line for each reason, by its first clause."""
    groups: dict[str, dict[str, list[str]]] = {}
    for axis, values in not_tried.items():
        for value, reason in values.items():
            short = re.split("[:,]", reason)[0]
            if policy.NOT_TRIED.get(axis, {}).get(value) == reason:
                short = "rarely worth a trial"
            groups.setdefault(short, {}).setdefault(axis, []).append(value)
    return [
        f"  {short}: {', '.join(f'{axis} ({listed(own, 3)})' for axis, own in values.items())}"
        for short, values in groups.items()
    ]
