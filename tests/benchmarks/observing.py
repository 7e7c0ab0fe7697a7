"""What reading a GPU costs what runs on it: steps of a host-bound training while NVML is asked, and while it is not.

    python -m tests.benchmarks.observing [--rounds 8] [--steps 8] [--output FILE.json]

BERT-large, bf16, micro-batch 8, checkpointing: a speed that is the host's. In every round each way of reading has so
many steps, in an order of its own, and is compared with the steps of that round in which nothing was read. ``--tiny``
shrinks the model for a machine without a GPU, where there is nothing to read.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from jobs.node import nvml
from jobs.spec import ModelSpec
from tests.benchmarks.docs_method import BERT_LARGE
from tests.benchmarks.overhead import BERT_TINY

POLL_SECONDS = 0.05
NOTHING = "nothing"
IN_A_PROCESS = f"""
import sys, time
from tests.benchmarks.observing import calls
asked = calls(sys.argv[1])
print(flush=True)
while True:
    time.sleep({POLL_SECONDS})
    for ask in asked.values():
        ask()
"""


def calls(uuid: str) -> Mapping[str, Callable[[], Any]]:
    """What a trial's device tracker asks of NVML, each by itself; what this GPU does not tell is left out."""
    import pynvml as nv

    nv.nvmlInit()
    handle = nv.nvmlDeviceGetHandleByUUID(uuid)
    asked: dict[str, Callable[[], Any]] = {
        "memory": lambda: nv.nvmlDeviceGetMemoryInfo(handle),
        "energy": lambda: nv.nvmlDeviceGetTotalEnergyConsumption(handle),
        "utilization": lambda: nv.nvmlDeviceGetUtilizationRates(handle),
        "clock": lambda: nv.nvmlDeviceGetClockInfo(handle, nv.NVML_CLOCK_SM),
        "temperature": lambda: nv.nvmlDeviceGetTemperature(handle, nv.NVML_TEMPERATURE_GPU),
        "processes": lambda: nv.nvmlDeviceGetComputeRunningProcesses(handle),
        "throttle reasons": lambda: nv.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
    }
    known = {}
    for name, ask in asked.items():
        with contextlib.suppress(nv.NVMLError):
            ask()
            known[name] = ask
    return known


@contextlib.contextmanager
def in_a_thread(asked: Sequence[Callable[[], Any]], every: float = POLL_SECONDS) -> Iterator[None]:
    """Ask all of them so often beside what this thread does."""
    stop = threading.Event()

    def poll() -> None:
        while not stop.wait(every):
            for ask in asked:
                ask()

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def in_a_process(uuid: str) -> Iterator[None]:
    """Ask all of them from another process."""
    with subprocess.Popen(
        [sys.executable, "-c", IN_A_PROCESS, uuid], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has imported everything, and asks
        try:
            yield
        finally:
            process.kill()


def ways(uuid: str) -> Mapping[str, Callable[[], AbstractContextManager[None]]]:
    """Name -> what reads the GPU meanwhile."""
    asked = calls(uuid)
    every = list(asked.values())
    found: dict[str, Callable[[], AbstractContextManager[None]]] = {
        NOTHING: contextlib.nullcontext,
        "all, in a thread": lambda: in_a_thread(every),
        "all, in a thread, every 0.25 s": lambda: in_a_thread(every, 0.25),
        "all, in a process": lambda: in_a_process(uuid),
    }
    for name, ask in asked.items():
        found[f"{name}, in a thread"] = lambda ask=ask: in_a_thread([ask])  # type: ignore[misc]
    return found


def training(*, tiny: bool) -> Callable[[], None]:
    """One step of it, issued."""
    import torch

    from jobs.trial import models

    device = torch.device("cpu" if tiny else "cuda")
    spec = ModelSpec(
        task="sequence-classification",
        architecture="bert",
        config=dict(BERT_TINY if tiny else BERT_LARGE),
    )
    model = models.build(spec, {}, device).train()
    model.gradient_checkpointing_enable()  # type: ignore[operator]
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.randint(1, 1000, (8, 32 if tiny else 512), device=device)
    labels = torch.zeros(8, dtype=torch.long, device=device)

    def step() -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not tiny:
            torch.cuda.synchronize()

    return step


def measure(
    step: Callable[[], None],
    read: Mapping[str, Callable[[], AbstractContextManager[None]]],
    rounds: int,
    steps: int,
    seed: int = 0,
) -> dict[str, list[float]]:
    """Way -> mean seconds of a step in each round."""
    generator, found = random.Random(seed), {name: list[float]() for name in read}
    for _ in range(rounds):
        for name in generator.sample(list(read), len(read)):
            with read[name]():
                step()
                begin = time.perf_counter()
                for _ in range(steps):
                    step()
                found[name].append((time.perf_counter() - begin) / steps)
    return found


def report(found: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Markdown: what is slower beside each way of reading, round by round."""
    yield "| read meanwhile | step s, median | slower than in the same round without: median | least | most |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name, seconds in found.items():
        more = sorted(
            one / without - 1 for one, without in zip(seconds, found[NOTHING], strict=True)
        )
        figures = " | ".join(f"{one:+.1%}" for one in (statistics.median(more), more[0], more[-1]))
        yield f"| {name} | {statistics.median(seconds):.4f} | {figures} |"


def latencies(asked: Mapping[str, Callable[[], Any]], count: int = 20) -> Iterator[str]:
    """How long each question takes by itself."""
    for name, ask in asked.items():
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            ask()
            seconds.append(time.perf_counter() - begin)
        yield f"{name}: {1000 * statistics.median(seconds):.2f} ms, at most {1000 * max(seconds):.2f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.observing")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8, help="of each way in a round")
    parser.add_argument("--output", type=Path, help="where to write the seconds as JSON")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    read: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
        NOTHING: contextlib.nullcontext
    }
    if not options.tiny:
        uuid = nvml.visible_uuids()[0]
        read = ways(uuid)
    step = training(tiny=options.tiny)
    for _ in range(3):
        step()
    found = measure(step, read, options.rounds, options.steps)
    if options.output:
        options.output.write_text(json.dumps(found))
    print("\n".join(report(found)))
    if not options.tiny:
        print("\n".join(latencies(calls(uuid))))


if __name__ == "__main__":
    main()
