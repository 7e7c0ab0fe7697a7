"""How the processes of a trial, its ranks, find each other, and with what they communicate."""

import os
import socket
from datetime import timedelta
from pathlib import Path

from jobs.errors import UnsupportedError

RENDEZVOUS = "ORCHESTRATORRENDEZVOUS"
"""Environment variable: URL of the file at which the ranks meet, which needs no free port."""


def rank_variables(world_size: int, folder: Path | None = None) -> list[dict[str, str]]:
    """Each rank's variables, as torchrun sets them. A rank sees its own GPU alone, so that it is
    the first of its devices. The ranks meet at a file in ``folder``."""
    common = {
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    if folder is not None:
        common[RENDEZVOUS] = (folder / "rendezvous").as_uri()
    return [{**common, "RANK": str(rank)} for rank in range(world_size)]


def join(world_size: int, timeout_seconds: float) -> None:
    """Wait for the other ranks. Raises UnsupportedError in a process that has not been made for so
    many, RuntimeError if they do not come."""
    import torch

    made_for = int(os.environ.get("WORLD_SIZE", "1"))
    if made_for != world_size:
        raise UnsupportedError(
            "world_size", f"it trains in {world_size} processes, and this is one of {made_for}"
        )
    # By default gloo looks for an address under the name of the host, which may have none.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo",
        init_method=os.environ.get(RENDEZVOUS, "env://"),
        world_size=world_size,
        rank=int(os.environ["RANK"]),
        # The trial's own timeout comes first, so that it names the rank that hangs.
        timeout=timedelta(seconds=timeout_seconds + 60.0),
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
