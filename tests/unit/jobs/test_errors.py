"""Errors, signals and exit codes, in the libraries' own words, and their outcomes."""

import errno
import signal

import pytest
import torch

from jobs.errors import TimeUpError, UnsupportedError, classify, classify_exit, requested_bytes
from jobs.infrastructure import DISK_FULL
from jobs.record import Outcome
from tests.support.commands import ROOT

TORCH_OOM = (
    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 139.81 GiB of "
    "which 1.20 GiB is free.\nProcess 1 has 138.60 GiB memory in use."
)
SAID = (ROOT / "tests/golden/errors.txt").read_text().splitlines()[1:]
EXITS = (ROOT / "tests/golden/exits.txt").read_text().splitlines()[1:]


@pytest.mark.parametrize("line", SAID)
def test_classify_by_the_libraries_words(line):
    text, _, outcome = line.replace("\\n", "\n").partition(" => ")
    assert classify(RuntimeError(text))[0] == outcome


def test_classify_by_the_class_of_the_error():
    assert classify(torch.OutOfMemoryError("in a library's words"))[0] is Outcome.OUT_OF_MEMORY
    assert classify(MemoryError())[0] is Outcome.HOST_OUT_OF_MEMORY


def test_classify_an_end_that_no_slot_asked_for():
    assert classify(TimeUpError()) == (Outcome.CRASHED, "", "killed by SIGTERM")


def test_classify_an_attention_that_an_architecture_does_not_list():
    assert classify(KeyError("xformers")) == (
        Outcome.UNSUPPORTED,
        "library",
        "attention=xformers is not among those that this architecture has",
    )
    assert classify(KeyError("sdpa"))[0] is Outcome.FAILED


def test_classify_reason_is_one_line_with_the_errors_name():
    _, rule, reason = classify(torch.OutOfMemoryError(TORCH_OOM))
    assert rule == ""
    assert reason == f"OutOfMemoryError: {TORCH_OOM.splitlines()[0]}"


def test_classify_keeps_the_rule_of_an_unmet_requirement():
    error = UnsupportedError("package:apex", "there is no apex")
    assert classify(error) == (Outcome.UNSUPPORTED, "package:apex", "there is no apex")


def wrapped(cause: Exception, *, explicitly: bool) -> Exception:
    """An error that a library raised while handling another."""
    error = RuntimeError("the engine failed")
    setattr(error, "__cause__" if explicitly else "__context__", cause)
    return error


@pytest.mark.parametrize("explicitly", [True, False])
def test_classify_finds_a_wrapped_out_of_memory(explicitly):
    error = wrapped(torch.OutOfMemoryError(TORCH_OOM), explicitly=explicitly)
    outcome, _, reason = classify(error)
    assert outcome is Outcome.OUT_OF_MEMORY
    assert reason.startswith("OutOfMemoryError: CUDA out of memory")
    assert requested_bytes(error) == 3 * 2**29


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0", 20 * 2**20),
        ("CUDA out of memory. Tried to allocate 512 bytes.", 512),
        ("Tried to allocate 1.50 KiB", 1536),
        ("tried to allocate 2.50 GiB", 5 * 2**29),
        ("Tried to allocate 1.50 TB", 3 * 2**39),
        ("Tried to allocate 1.50 TiB", 3 * 2**39),
        ("CUDA out of memory.", None),
    ],
)
def test_requested_bytes_are_read_from_the_message(message, expected):
    assert requested_bytes(RuntimeError(message)) == expected


@pytest.mark.parametrize("line", EXITS)
def test_classify_exit_of_a_child_without_a_record(line):
    exited, _, expected = line.partition(" => ")
    outcome, _, reason = expected.partition(": ")
    status, kills = map(int, exited.split())
    result, words = classify_exit(status, host_oom_kills=kills)
    assert result == outcome
    assert words.startswith(reason)


@pytest.mark.parametrize(
    ("status", "last_lines", "outcome"),
    [
        (1, "Error out of memory at line 380 in file ops.cu\n\n", Outcome.OUT_OF_MEMORY),
        (-signal.SIGABRT, "terminate called\nwhat():  std::bad_alloc", Outcome.HOST_OUT_OF_MEMORY),
        (1, "CUDA out of memory." + "\nand went on" * 5, Outcome.CRASHED),
        (-signal.SIGKILL, "CUDA out of memory.", Outcome.CRASHED),
    ],
    ids=["bitsandbytes", "abort", "long_ago", "killed"],
)
def test_classify_exit_reads_the_logs_end(status, last_lines, outcome):
    log = "step 1\n" * 9 + last_lines
    assert classify_exit(status, host_oom_kills=0, log=log)[0] is outcome


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "no room", "/tmp/x/states.bin"), "no room for /tmp/x/states.bin: /"),
        (OSError(errno.EDQUOT, "no quota"), "a file could not be written ([Errno 122] no quota)"),
        (RuntimeError("No space left on device"), "a file could not be written (No space left"),
        (RuntimeError("I/O error: (os error 28)"), "a file could not be written (I/O error"),
        (wrapped(OSError(errno.ENOSPC, "x", "/tmp/y"), explicitly=True), "no room for /tmp/y: /"),
    ],
)
def test_reason_of_a_full_disk_names_the_file_if_it_is_known(error, reason):
    outcome, rule, words = classify(error)
    assert (outcome, rule) == (Outcome.SKIPPED, DISK_FULL)
    assert words.startswith(reason)
    assert classify(OSError(errno.EACCES, "not allowed", "/root/x"))[0] is Outcome.FAILED
