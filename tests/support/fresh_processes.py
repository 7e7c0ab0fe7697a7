"""Fresh processes that have the heavy libraries already: trials, slots' parents, verbs and exported
trainings run in them.

All tests of a pytest process share one fork server, so torch, transformers and TRL are imported
once. A process that is forked from it has run no training and has used no GPU.
"""

import contextlib
import functools
import importlib.util
import json
import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from jobs.isolation import prewarm
from jobs.node.processes import end_with_parent, process_variables
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec, from_json, to_json

LIBRARIES = ["torch", "datasets", "transformers.trainer", "accelerate", "peft", "bitsandbytes"]
LIBRARIES += ["deepspeed", "matplotlib.figure"]
TRL = ["trl.trainer.sft_trainer", "trl.trainer.dpo_trainer"]
OWN_PACKAGES = ("jobs", "orchestrator", "tests")
AS_MEASURED = ("--synthetic", "--eval_strategy", "no", "--save_strategy", "no")
"""Options of an exported script that trains on what the trial trained on, and nothing else."""
_LONGEST_SECONDS = 800


def started() -> ForkServerContext:
    """The context whose processes are forked from the fork server, which is running now."""
    context = multiprocessing.get_context("forkserver")
    preloaded = list(LIBRARIES)
    if importlib.util.find_spec("trl") is not None:
        preloaded += TRL
    context.set_forkserver_preload(preloaded)
    # Its processes have the environment that the server is started with.
    with patch.dict(os.environ, {**process_variables(1), "CUDA_VISIBLE_DEVICES": ""}):
        forkserver.ensure_running()
    return context


@contextlib.contextmanager
def waiting_parent(
    context: ForkServerContext, folder: Path, cpus: int, *, steps: int | None = None
) -> Iterator[Mapping[str, str]]:
    """While the context lasts, a slot of ``cpus`` cores finds a parent that need not preload by
    these environment variables, unless the machine has a GPU.

    Its trials count so many ``steps``, if given, instead of those that they are planned with.
    """
    path = prewarm._socket_path(folder, "", cpus)
    path.unlink(missing_ok=True)
    reading, writing = context.Pipe(duplex=False)
    parent = context.Process(
        target=_serve_slot, args=(path, cpus, steps, dict(os.environ), writing)
    )
    parent.start()
    writing.close()
    reading.recv()  # it listens
    try:
        yield {prewarm.FOLDER_VARIABLE: str(folder)}
    finally:
        parent.kill()
        parent.join()


def _serve_slot(
    path: Path, cpus: int, steps: int | None, variables: Mapping[str, str], ready: Connection
) -> None:
    import torch

    if steps is not None:
        _count_only(steps)

    from jobs.isolation import forkserver, scratch

    end_with_parent(os.getppid())
    _as_started()
    os.environ.update(variables)
    torch.set_num_threads(cpus)
    with open(path.with_suffix(".err"), "w") as errors:
        os.dup2(errors.fileno(), 1)
        os.dup2(errors.fileno(), 2)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        prewarm._claim_file(path).write_text(str(os.getpid()))
        ready.send(True)
        with scratch.own_folder(scratch.SLOT_PREFIX) as folder:
            forkserver.serve(functools.partial(prewarm.accept, listener), folder)


def _count_only(steps: int) -> None:
    from jobs.trial import run

    measured = run.run

    def run_shorter(spec: TrialSpec, *arguments: Any, **options: Any) -> TrialRecord:
        measure = replace(spec.measure, steps=steps)
        record = measured(replace(spec, measure=measure), *arguments, **options)
        return replace(record, spec=spec)

    run.run = run_shorter


def in_a_process(context: ForkServerContext, work: Callable[..., None], *arguments: Any) -> None:
    """Run ``work`` in a process of its own; its output is the failure's message.

    The last of the arguments is the folder of its ``log.txt``.
    """
    log: Path = arguments[-1] / "log.txt"
    process = context.Process(target=_logged, args=(log, work, arguments))
    process.start()
    process.join(_LONGEST_SECONDS)
    process.kill()  # one that hangs must not outlive its test
    process.join()
    assert process.exitcode == 0, log.read_text()[-4000:]


def printed_by_python(
    context: ForkServerContext, words: Sequence[str], folder: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """``python WORDS...`` of a script or ``python -m WORDS...`` of a module, which has run in a
    folder with these environment variables."""
    with tempfile.TemporaryDirectory() as outputs:
        files = [Path(outputs, name) for name in ("stdout", "stderr")]
        process = context.Process(target=_run_python, args=(words, folder, variables, files))
        process.start()
        process.join()
        texts = [file.read_text() for file in files]
    return subprocess.CompletedProcess(words, process.exitcode or 0, *texts)


def _run_python(
    words: Sequence[str], folder: Path, variables: Mapping[str, str], files: Sequence[Path]
) -> None:
    from jobs.library_facts.__main__ import answers
    from orchestrator.planning import library_facts

    _as_started()
    library_facts._asked = answers  # the libraries are here, so no further process imports them
    for descriptor, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), descriptor)
    os.chdir(folder)
    os.environ.update(variables)
    sys.argv = list(words)
    if words[0].endswith(".py"):
        sys.path.insert(0, str(folder / Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")
    else:
        sys.path.insert(0, str(folder))
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def measured_record(context: ForkServerContext, spec: TrialSpec, folder: Path) -> TrialRecord:
    """The record of a trial that has run in a process of its own, and ended ok."""
    in_a_process(context, _measure, to_json(spec), folder)
    record = from_json(TrialRecord, json.loads((folder / "record.json").read_text()))
    assert record.outcome is Outcome.OK, record.reason
    return record


def figures_of(
    context: ForkServerContext, options: Sequence[str], exported: Path, *, path: Sequence[str] = ()
) -> dict[str, Any]:
    """What an exported training prints at its end.

    ``path`` are folders of modules that it may import beside its own; this project's it may not.
    """
    in_a_process(context, train, options, path, exported)
    figures: dict[str, Any] = json.loads((exported / "printed.txt").read_text().splitlines()[-1])
    return figures


def train(options: Sequence[str], path: Sequence[str], folder: Path) -> None:
    """Run an exported script in this process, as Python does, and without this project's code."""
    for name in list(sys.modules):
        if name.partition(".")[0] in OWN_PACKAGES:
            sys.modules[name] = None  # type: ignore[assignment]
    sys.argv = ["train.py", "--disable_tqdm", "true", *options]
    sys.path[:0] = [str(folder), *path]  # as python does for a script
    with open(folder / "printed.txt", "w") as printed, contextlib.redirect_stdout(printed):
        runpy.run_path(str(folder / "train.py"), run_name="__main__")


def _logged(log: Path, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    _as_started()
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        work(*arguments)


def _as_started() -> None:
    """Start further processes, such as those of data loaders, as a process does that was not forked
    from a fork server."""
    multiprocessing.set_start_method(None, force=True)  # type: ignore[arg-type]


def _measure(spec: dict[str, Any], folder: Path) -> None:
    from jobs.trial import run

    record = run.run(from_json(TrialSpec, spec), lambda phase: None, scratch=folder)
    (folder / "record.json").write_text(json.dumps(to_json(record)))
