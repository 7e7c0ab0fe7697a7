"""What an error means: exceptions, signals and exit codes named as outcomes."""

import errno
import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from jobs.infrastructure import DISK_FULL, disk_in_words, fullest_disk_in_words, says_disk_full
from jobs.record import Outcome


class UnsupportedError(Exception):
    """The trial cannot run on this node: ``rule`` names the requirement, the message says why."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule


class TimeUpError(BaseException):
    """The slot asks the trial to end. No library takes it for an error of its own."""


_TEXTS: Mapping[Outcome, tuple[str, ...]] = {
    Outcome.HOST_OUT_OF_MEMORY: (
        r"^(_Array)?MemoryError:",  # Python, NumPy
        r"DefaultCPUAllocator: (can't|not enough)",  # PyTorch
        r"Cannot allocate memory",  # the C library
        r"std::bad_alloc",
        r"unable to mmap .*memory",
        r"cudaErrorHostMemory|cudaHostAlloc|failed to allocate pinned",  # page-locked memory
        # A data loader's thread only pins memory. The first line is the wrapper's own.
        r"in pin memory thread[\s\S]*out of memory",
        r"DataLoader worker .*killed by signal: Killed",  # the kernel's out-of-memory killer
        r"DataLoader worker .*killed by signal: Bus error",  # /dev/shm, a disk in memory, is full
        r"shared memory( ?\(shm\)| object)|unable to write to file </torch_",  # so it is here
    ),
    Outcome.OUT_OF_MEMORY: (
        r"^OutOfMemoryError:|(CUDA|HIP) out of memory",  # PyTorch's allocator
        r"CUDA( driver)? error: out of memory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY",
        r"cuMemCreate",  # expandable segments
        r"(CUBLAS|CUDNN|CUSOLVER|CUSPARSE)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED",
        r"CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        # Libraries that say nothing of memory when their first allocation fails.
        r"CUBLAS_STATUS_NOT_INITIALIZED",
        r"unable to find a valid cuDNN algorithm|unable to find an engine",
        r"Error out of memory at line",  # bitsandbytes
        r"Triton Error \[CUDA\]: out of memory",
        r"NCCL.*out of memory",
        r"out of memory \(os error",  # safetensors
    ),
    Outcome.UNSUPPORTED: (
        r"does not support an attention implementation",
        r"does not support .*(scaled_dot_product_attention|flex)",
        r"does not support Flash ?Attention",
        r"does not support (gradient|activation) checkpointing",
        r"the package .* (seems to be )?not (be )?installed",
        r"PEFT does not support this adapter",
        r"does not support FP8",
        r"does not support (a fused loss|Liger's kernels|regional compilation|Muon)",
        r"does not support (a frozen vision tower|quantize_experts|qat|dequantized weights)",
        r"does not support (these patterns of trainable|kernels of the Hub|a weighted loss)",
    ),
}
"""Outcome -> what libraries say that means it, whatever the class. The first match counts."""
_MEANINGS = {
    outcome: re.compile("|".join(texts), re.IGNORECASE) for outcome, texts in _TEXTS.items()
}
_UNLISTED_ATTENTION = re.compile(r"KeyError: '(varlen|xformers)'")
"""What an architecture raises whose file lists its attention implementations itself."""
_REQUESTED_SIZE = re.compile(r"[Tt]ried to allocate ([\d.]+) ([KMGT]i?B|bytes)")
# A decimal prefix is read as the binary one, which overstates a size by less than 8 %.
_UNITS = {"b": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def classify(error: BaseException) -> tuple[Outcome, str, str]:
    """The outcome, rule and reason (one line) of the outermost error with a known meaning."""
    if isinstance(error, TimeUpError):
        return Outcome.CRASHED, "", "killed by SIGTERM"  # unless the slot sent it
    for cause in _chain(error):
        if isinstance(cause, UnsupportedError):
            return Outcome.UNSUPPORTED, cause.rule, str(cause)
        if memory_outcome := _memory_outcome(_text(cause)):
            return memory_outcome, "", _first_line(_text(cause))
    if is_disk_full(error):
        return Outcome.SKIPPED, DISK_FULL, disk_full_reason(error)
    text = _text(error)
    if unlisted := _UNLISTED_ATTENTION.fullmatch(text):
        reason = f"attention={unlisted[1]} is not among those that this architecture has"
        return Outcome.UNSUPPORTED, "library", reason
    if _MEANINGS[Outcome.UNSUPPORTED].search(text):
        return Outcome.UNSUPPORTED, "library", _first_line(text)
    return Outcome.FAILED, "", _first_line(text)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _memory_outcome(text: str) -> Outcome | None:
    for outcome in (Outcome.HOST_OUT_OF_MEMORY, Outcome.OUT_OF_MEMORY):
        if _MEANINGS[outcome].search(text):
            return outcome
    return None


def requested_bytes(error: BaseException) -> int | None:
    """Size of the allocation that an out-of-memory error is about; None if it does not say."""
    for cause in _chain(error):
        if size := _REQUESTED_SIZE.search(str(cause)):
            return int(float(size[1]) * _UNITS[size[2][0]])
    return None


def is_disk_full(error: BaseException) -> bool:
    """Whether an exception, a cause or its text is about a disk without room or quota."""
    return any(
        getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or says_disk_full(str(cause))
        for cause in _chain(error)
    )


def disk_full_reason(error: BaseException) -> str:
    """The reason of a trial that met a full disk: the file, if it is known, and the disk."""
    for cause in _chain(error):
        if isinstance(cause, OSError) and isinstance(cause.filename, str):
            return f"no room for {cause.filename}: {disk_in_words(Path(cause.filename))}"
    # Some errors name no file. Then the fullest of the disks that libraries write to is named.
    message = _first_line(str(error)) or type(error).__name__
    return f"a file could not be written ({message}): {fullest_disk_in_words()}"


def classify_exit(status: int, *, host_oom_kills: int, log: str = "") -> tuple[Outcome, str]:
    """The outcome and reason of a child that ended without a record, by its exit status and log."""
    if status == -signal.SIGKILL and host_oom_kills > 0:
        return Outcome.HOST_OUT_OF_MEMORY, "the kernel's out-of-memory killer ended the process"
    if status in (137, -signal.SIGKILL):  # a shell reports SIGKILL as 128 + 9
        reason = "killed by SIGKILL, not by this program or the kernel's out-of-memory killer"
        return Outcome.CRASHED, reason
    for line in reversed(log.strip().splitlines()[-5:]):
        if outcome := _memory_outcome(line):
            return outcome, _first_line(line)
    if status < 0:
        return Outcome.CRASHED, f"killed by {_signal_name(-status)}"
    return Outcome.CRASHED, f"the process exited with status {status} and no result"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "").strip()[:500]
