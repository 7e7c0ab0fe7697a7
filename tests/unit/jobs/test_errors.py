"""Errors, signals and exit codes, in the libraries' own words, and their outcomes."""

from __future__ import annotations

import signal

import pytest
import torch

from jobs.errors import UnsupportedError, classify, classify_exit, requested_bytes
from jobs.record import Outcome

TORCH_OOM = (
    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 139.81 GiB of "
    "which 1.20 GiB is free.\nProcess 1 has 138.60 GiB memory in use."
)

ERRORS: list[tuple[Exception, Outcome]] = [
    (torch.OutOfMemoryError(TORCH_OOM), Outcome.OUT_OF_MEMORY),
    (RuntimeError("CUDA error: out of memory"), Outcome.OUT_OF_MEMORY),
    (RuntimeError("CUDA driver error: out of memory"), Outcome.OUT_OF_MEMORY),
    (
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        Outcome.OUT_OF_MEMORY,
    ),
    (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), Outcome.OUT_OF_MEMORY),
    (RuntimeError("Triton Error [CUDA]: out of memory"), Outcome.OUT_OF_MEMORY),
    (RuntimeError("NCCL Error 1: unhandled cuda error, out of memory"), Outcome.OUT_OF_MEMORY),
    (MemoryError(), Outcome.HOST_OUT_OF_MEMORY),
    (
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"
        ),
        Outcome.HOST_OUT_OF_MEMORY,
    ),
    (OSError(12, "Cannot allocate memory"), Outcome.HOST_OUT_OF_MEMORY),
    (RuntimeError("std::bad_alloc"), Outcome.HOST_OUT_OF_MEMORY),
    (
        ValueError(
            "X does not support an attention implementation through torch's flex_attention."
        ),
        Outcome.UNSUPPORTED,
    ),
    (
        ValueError("T5ForConditionalGeneration does not support Flash Attention 2.0 yet."),
        Outcome.UNSUPPORTED,
    ),
    (ImportError("the package flash_attn seems to be not installed."), Outcome.UNSUPPORTED),
    (ValueError("TinyModel does not support gradient checkpointing."), Outcome.UNSUPPORTED),
    (ValueError("shapes do not match"), Outcome.FAILED),
    (RuntimeError("CUDA error: an illegal memory access was encountered"), Outcome.FAILED),
    (RuntimeError("my pipeline ran out of memory cards"), Outcome.FAILED),
]


@pytest.mark.parametrize(("error", "outcome"), ERRORS, ids=lambda value: str(value)[:40])
def test_classify_by_the_libraries_words(error: Exception, outcome: Outcome) -> None:
    assert classify(error)[0] is outcome


def test_classify_reason_is_one_line_with_the_errors_name() -> None:
    _, rule, reason = classify(torch.OutOfMemoryError(TORCH_OOM))
    assert rule == ""
    assert reason == f"OutOfMemoryError: {TORCH_OOM.splitlines()[0]}"


def test_classify_cuts_an_endless_message() -> None:
    assert len(classify(ValueError("x" * 10_000))[2]) == 500


def test_classify_keeps_the_rule_of_an_unmet_requirement() -> None:
    error = UnsupportedError("package:apex", "the package apex is not installed")
    assert classify(error) == (
        Outcome.UNSUPPORTED,
        "package:apex",
        "the package apex is not installed",
    )


def wrapped(cause: Exception, *, explicitly: bool) -> Exception:
    """An error that a library raised while handling another."""
    try:
        try:
            raise cause
        except Exception as error:
            if explicitly:
                raise RuntimeError("the engine failed") from error
            raise RuntimeError("the engine failed")  # noqa: B904 (the context is the point)
    except RuntimeError as outer:
        return outer


@pytest.mark.parametrize("explicitly", [True, False])
def test_classify_finds_a_wrapped_out_of_memory(explicitly: bool) -> None:
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
        ("tried to allocate 2.50 GiB", 5 * 2**29),
        ("Tried to allocate 1.50 TB", 3 * 2**39),
        ("Tried to allocate 1.50 TiB", 3 * 2**39),
        ("CUDA out of memory.", None),
    ],
)
def test_requested_bytes_are_read_from_the_message(message: str, expected: int | None) -> None:
    assert requested_bytes(RuntimeError(message)) == expected


@pytest.mark.parametrize(
    ("status", "kills", "outcome", "reason"),
    [
        (
            -signal.SIGKILL,
            1,
            Outcome.HOST_OUT_OF_MEMORY,
            "the kernel's out-of-memory killer ended the process",
        ),
        (-signal.SIGKILL, 0, Outcome.CRASHED, "killed by SIGKILL"),
        (137, 0, Outcome.CRASHED, "killed by SIGKILL"),
        (-signal.SIGSEGV, 1, Outcome.CRASHED, "killed by SIGSEGV"),
        (-signal.SIGABRT, 0, Outcome.CRASHED, "killed by SIGABRT"),
        (-signal.SIGBUS, 0, Outcome.CRASHED, "killed by SIGBUS"),
        (-(signal.SIGRTMIN + 1), 0, Outcome.CRASHED, f"killed by signal {signal.SIGRTMIN + 1}"),
        (3, 0, Outcome.CRASHED, "the process exited with status 3 and no result"),
        (0, 0, Outcome.CRASHED, "the process exited with status 0 and no result"),
    ],
)
def test_classify_exit_of_a_child_without_a_record(
    status: int, kills: int, outcome: Outcome, reason: str
) -> None:
    result, words = classify_exit(status, host_oom_kills=kills)
    assert result is outcome
    assert words.startswith(reason)
