"""The options of the verbs that measure."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.planning.document import Source
from orchestrator.storage.location import Location


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """On which cluster to measure, for how long, and which trials."""

    address: str | None = None
    """Address of a Ray cluster. None: that of ``RAY_ADDRESS``, or else a Ray started here."""
    time_budget_seconds: float | None = None
    resume: bool = False
    """Continue a run: repeat nothing that has finished."""
    fresh: bool = False
    """Measure everything again."""
    force: bool = False
    """Write into a folder that holds other files than a run's."""
    as_json: bool = False
    """Print the result as JSON on stdout, and progress on stderr."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerbOptions(RunOptions):
    """What is measured and written where: the command line has an argument for each field."""

    config: Source
    output: Location | None = None
    """None: the configuration's own folder, or one beside it."""
    trust_remote_code: bool = False
    allow_own_code: bool = False
    gpus: int | None = None
    """GPUs of a trial; None: as ``resources.gpus_per_trial`` says."""
    choices: Sequence[str] = ()
    """Values of axes in place of the configuration's, as ``AXIS=VALUE``."""
    dry_run: bool = False
    """Print the plan and measure nothing."""
