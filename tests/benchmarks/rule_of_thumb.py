"""What `tune` finds for several GPUs, beside the rule of thumb within the same memory.

    python -m tests.benchmarks.rule_of_thumb CONFIG OUTPUT --memory 76GiB --gpu-minutes 5

The rule: DDP if it fits, else ZeRO-3, with the largest micro-batch (a power of two), and all else
as in the user's own arguments. Minutes are those of each GPU; OUTPUT is the run folder of `tune`.
"""

import argparse
import itertools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from jobs.isolation.slot import Slot
from jobs.node import environment, nvml
from jobs.record import TrialRecord
from orchestrator import argument_types
from orchestrator.analysis.configuration import MEMORY_COLUMNS
from orchestrator.analysis.dataset import load_dataset
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.planning.settings import SweepConfig
from orchestrator.reporting.verbs.tune_result import read
from orchestrator.units import GIB

TIMEOUT = 120.0
PREFERRED = ("ddp", "zero3")
"""Values of the axis sharding: the next is tried if no micro-batch of the one before fits."""


def rule_of_thumb(config: SweepConfig, slot: Slot, budget: int) -> TrialRecord | None:
    """The trial that the rule ends with; None if nothing fits the budget."""
    for sharding in PREFERRED:
        fitting = list(fitting_trials(config, slot, sharding, budget))
        if fitting:
            return fitting[-1]
    return None


def fitting_trials(
    config: SweepConfig, slot: Slot, sharding: str, budget: int
) -> Iterator[TrialRecord]:
    """Trials of doubling micro-batches, up to the first that fails or does not fit."""
    for power in itertools.count():
        choices = {"sharding": sharding, "micro_batch": 2**power, "accumulation": 1}
        own = replace(config, axes={}, subsets={}, trials=(choices,))
        (spec,) = plan(own, has_gpu=bool(nvml.visible_uuids())).trials
        record = slot.run(spec, TIMEOUT)
        failed = f"{sharding}, micro-batch {2**power}: {record.reason}"
        print(failed if record.reason else in_words(record), flush=True)
        if record.reason or memory_of(record) > budget:
            return
        yield record


def memory_of(record: TrialRecord) -> int:
    """The memory that budgets are about, of the fullest GPU; without one, of the host."""
    return next(filter(None, map(record.measurements.get, MEMORY_COLUMNS)))


def figures(label: str, samples_per_second: float, memory_bytes: int) -> str:
    return f"{label}: {samples_per_second:.2f} samples/s in {memory_bytes / GIB:.2f} GiB a GPU"


def in_words(record: TrialRecord) -> str:
    label = f"{record.spec.choices['sharding']}, micro-batch {record.spec.micro_batch}"
    return figures(label, record.measurements["samples_per_second"], memory_of(record))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("output")
    parser.add_argument("--gpus", default=2, type=argument_types.count)
    parser.add_argument("--memory", required=True)
    parser.add_argument("--gpu-minutes", default="5")
    options = parser.parse_args()
    (budget,) = argument_types.sizes(options.memory)
    config = load_config(options.config)
    resources = config.resources.model_copy(update={"gpus_per_trial": options.gpus})
    with Slot(environment.cores()) as slot:
        ruled = rule_of_thumb(replace(config, resources=resources), slot, budget)
    words = ["--gpus", str(options.gpus), "--memory", options.memory, "--output", options.output]
    words += ["--gpu-minutes", options.gpu_minutes, str(options.config)]
    subprocess.run([sys.executable, "-m", "orchestrator.tune", *words], check=False)
    # The first answer keeps the user's own training; the second may train differently.
    best = read(load_dataset(Path(options.output))).results[0].best
    if ruled is None or best is None:
        print("nothing fits by the rule of thumb" if ruled is None else "tune: nothing fits")
        return
    print("rule of thumb:", in_words(ruled))
    print("tune:", figures(best.label, best.samples_per_second, best.memory_bytes))
    gain = best.samples_per_second / ruled.measurements["samples_per_second"]
    print(f"tune / rule of thumb: {gain:.2f}")


if __name__ == "__main__":
    main()
