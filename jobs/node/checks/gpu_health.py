"""Checks of the GPUs, their driver, and the processes on them."""

from collections.abc import Iterator

from jobs.node.checks.findings import Finding, dotted, gib, ok, problem, warning
from jobs.node.checks.machine import Machine
from jobs.node.gpu_fitness import is_in_use


def driver(machine: Machine) -> Iterator[Finding]:
    """NVML answers: without it nothing can be measured on a GPU."""
    error = machine.nvml_error
    if not error:
        cuda = ".".join(map(str, machine.driver_cuda or ()))
        yield ok(f"NVML answers: driver {machine.driver}, CUDA up to {cuda}")
    elif not machine.nvidia_device:
        yield warning(
            f"no NVIDIA GPU here ({error}): trials measure the CPU",
            "nothing to do on a machine without one; in a container, pass the GPUs in "
            "(docker run --gpus all)",
        )
    elif "mismatch" in error.lower():
        yield problem(
            f"there is an NVIDIA GPU, but its driver was replaced while loaded: {error}",
            "reboot, or unload and reload the nvidia kernel modules",
        )
    else:
        yield problem(
            f"there is an NVIDIA GPU, but NVML does not answer: {error}",
            "install NVIDIA's driver, or make libnvidia-ml.so.1 and /dev/nvidiactl visible here "
            "(in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
        )


def gpus(machine: Machine) -> Iterator[Finding]:
    """There is a GPU, and it is visible."""
    for gpu in machine.gpus:
        yield ok(f"GPU {gpu.index}: {gpu.name}, {gib(gpu.total_bytes)}")
    if machine.link:
        yield ok(f"{len(machine.gpus)} GPUs, linked by {machine.link}")
    if not machine.gpus and not machine.nvml_error:
        yield problem(
            "the driver runs, but it has no GPU",
            "look for Xid errors in dmesg; reset or replace the GPU",
        )
    visible = machine.variables.get("CUDA_VISIBLE_DEVICES")
    # An empty list and "-1" hide every GPU (CUDA's programming guide).
    hides_all = visible is not None and not visible.strip(" -1")
    if machine.gpus and hides_all:
        yield problem("CUDA_VISIBLE_DEVICES hides every GPU", "unset it")


def shared_gpu(machine: Machine) -> Iterator[Finding]:
    """A trial needs its GPU to itself: its memory is the difference to what was in use before."""
    in_use = [gpu for gpu in machine.gpus if is_in_use(len(gpu.processes), gpu.used_bytes)]
    for gpu in in_use:
        used = gib(gpu.used_bytes)
        # Processes that NVML lists can be named; in a container it may list none of them.
        message = f"is in use: {used} by process {', '.join(map(str, gpu.processes))}"
        fix = "end it, or wait for it"
        if not gpu.processes:
            message = f"has {used} in use by a process that cannot be seen from here"
            fix = "look for it outside this container (nvidia-smi on the host)"
        fix += "; rows measured meanwhile are flagged as shared"
        yield warning(f"GPU {gpu.index} {message}", fix)
    if machine.gpus and not in_use:
        yield ok("no other process uses the GPUs")


def clocks(machine: Machine) -> Iterator[Finding]:
    """No GPU is throttled: the speed of a throttled GPU depends on its cooling or power supply."""
    for gpu in machine.gpus:
        if gpu.slowed:
            yield warning(
                f"GPU {gpu.index} is slowed down now: {', '.join(gpu.slowed)}",
                "check its cooling and power supply; leave it out with CUDA_VISIBLE_DEVICES until "
                "then",
            )


def torch_build(machine: Machine) -> Iterator[Finding]:
    """torch was built for CUDA, in a version that the driver can run."""
    if "torch" not in machine.packages or not machine.gpus:
        return
    version, built, runs = machine.packages["torch"], machine.torch_cuda, machine.driver_cuda
    if built is None:
        yield problem(
            f"torch {version} is a CPU build beside an NVIDIA GPU: every trial would measure the "
            "CPU",
            "pip install --force-reinstall torch from PyPI, or from PyTorch's index for this "
            "driver's CUDA",
        )
    # Within a major version, newer builds run on older drivers.
    elif runs is not None and built[0] > runs[0]:
        yield problem(
            f"torch is built for CUDA {dotted(built)}, the driver runs CUDA up to {dotted(runs)}",
            f"update the driver, or install a torch built for CUDA {runs[0]}",
        )
    else:
        yield ok(f"torch {version} is built for CUDA {dotted(built)}")


CHECKS = {
    "driver": driver,
    "gpus": gpus,
    "shared GPU": shared_gpu,
    "clocks": clocks,
    "torch build": torch_build,
}
