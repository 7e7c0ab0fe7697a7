"""A Ray cluster of network namespaces: its nodes can be cut off, killed and added."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from tests.chaos.control import Control

CODE = Path(__file__).parents[2]
ROOT = Path("/mnt")
"""A file system of the arena's own, gone with it. Ray's sockets need a short path."""
RUN = ROOT / "run"
"""Where the sweeps write: a small file system that only the head and the driver can see."""
HEAD = "10.77.0.1"
ADDRESS = f"{HEAD}:6379"
_VARIABLES = {
    # A lost node is found out in seconds instead of minutes.
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "4000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "0" * 64,
    "RAY_enable_metrics_collection": "0",
    "CHAOS_CONTROL": str(ROOT / "control"),
    "PYTHONPATH": os.pathsep.join((str(CODE / "tests/chaos/standin"), str(CODE))),
}
_ASK_GCS = """
import json, sys
from ray._raylet import GcsClient
gcs, place = GcsClient(address=sys.argv[1]), dict(key=b"CLUSTER_METADATA", namespace=b"cluster")
if sys.argv[2] == "alive":
    nodes = gcs.get_all_node_info(timeout=10).values()
    print(json.dumps([node.node_manager_address for node in nodes if node.state == 0]))
else:
    found = json.loads(gcs.internal_kv_get(**place))
    print(json.dumps(found["ray_version"]))
    value = json.dumps({**found, "ray_version": sys.argv[3]}).encode()
    gcs.internal_kv_put(place["key"], value, True, namespace=place["namespace"])
"""


@dataclass(kw_only=True)
class Node:
    """One machine: the process that keeps its namespaces, and Ray's processes in them."""

    name: str
    address: str
    holder: subprocess.Popen[bytes] | None = None
    ray: list[psutil.Process] = field(default_factory=list)

    @property
    def inside(self) -> Sequence[str]:
        """What a command begins with that runs on the node."""
        if self.holder is None:
            return ()
        return ("nsenter", "--target", str(self.holder.pid), "--net", "--mount")

    def process(self, name: str) -> psutil.Process:
        """Ray's ``raylet`` or ``gcs_server`` of this node."""
        return next(one for one in self.ray if one.name() == name)

    def kill(self) -> None:
        for one in self.ray:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in (*one.children(recursive=True), one):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
        if self.holder is not None:
            self.holder.kill()
            self.holder.wait()


class Arena:
    """The machines: a head without a GPU, and nodes with one each."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.control = Control(ROOT / "control")
        self._made = 0

    @contextlib.contextmanager
    def machines(self, nodes: int) -> Iterator[Self]:
        """The network, the file systems, the head, and so many nodes."""
        _do(f"mount -t tmpfs tmpfs {ROOT}")
        # Ray notes there which cluster was started last, which would be found from outside.
        Path("/tmp/ray").mkdir(exist_ok=True)
        _do("mount -t tmpfs tmpfs /tmp/ray")
        RUN.mkdir()
        _do(f"mount -t tmpfs -o size=64m tmpfs {RUN}")
        self.control.clear()
        _do("ip link set lo up")
        _do("ip link add bridge type bridge")
        _do(f"ip address add {HEAD}/24 dev bridge")
        _do("ip link set bridge up")
        self._start(nodes)
        try:
            yield self
        finally:
            self._stop()

    def restart(self) -> None:
        nodes = len(self.nodes) - 1
        self._stop()
        self._start(nodes)

    def add(self) -> str:
        self._made += 1
        name, address = f"node{self._made}", f"10.77.0.{self._made + 1}"
        hidden = f"mount -t tmpfs tmpfs {RUN} && exec sleep infinity"
        holder = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-c", hidden])
        while Path(f"/proc/{holder.pid}/comm").read_text().strip() != "sleep":
            time.sleep(0.05)
        node = Node(name=name, address=address, holder=holder)
        _do(f"ip link add {name} type veth peer name eth0 netns {holder.pid}")
        _do(f"ip link set {name} master bridge up")
        for command in ("link set lo up", f"address add {address}/24 dev eth0", "link set eth0 up"):
            _do(f"ip {command}", node.inside)
        self._start_ray(node, f"--address {ADDRESS} --num-cpus 1 --num-gpus 1")
        return name

    def lose(self, name: str) -> None:
        self.nodes.pop(name).kill()

    def cut(self, name: str) -> None:
        _do(f"ip link set {name} down")

    def heal(self, name: str) -> None:
        _do(f"ip link set {name} up")

    def is_alive(self, name: str) -> bool:
        return self.nodes[name].address in self._ask_gcs("alive")

    def set_ray_version(self, version: str) -> str:
        """Let the cluster say that it runs another Ray; what it said before."""
        return str(self._ask_gcs("version", version))

    def environment(self, node: str = "") -> dict[str, str]:
        """What every process of a node is started with; "" is the driver."""
        return {**os.environ, **_VARIABLES, "CHAOS_NODE": node}

    def _start(self, nodes: int) -> None:
        temporary = f"--include-dashboard false --temp-dir {ROOT / 'ray'}"
        head = f"--head --port 6379 --num-cpus 0 --num-gpus 0 {temporary}"
        self._start_ray(Node(name="head", address=HEAD), head)
        for _ in range(nodes):
            self.add()

    def _stop(self) -> None:
        while self.nodes:
            self.lose(next(iter(self.nodes)))

    def _ask_gcs(self, *question: str) -> Any:
        """From a process of its own: Ray's client ends the one that it is in when the head dies."""
        command = [sys.executable, "-c", _ASK_GCS, ADDRESS, *question]
        done = subprocess.run(command, env=self.environment(), capture_output=True, check=True)
        return json.loads(done.stdout)

    def _start_ray(self, node: Node, options: str) -> None:
        before = set(psutil.pids())
        small = "--object-store-memory 80000000 --memory 2000000000 --disable-usage-stats"
        words = f"-m ray.scripts.scripts start --node-ip-address {node.address} {options} {small}"
        started = subprocess.run(
            [*node.inside, sys.executable, *words.split()],
            env=self.environment(node.name),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if started.returncode != 0:
            raise RuntimeError(f"{node.name} did not start:\n{started.stdout}\n{started.stderr}")
        # Ray's daemons are orphans by now, and adopted by the first process of these namespaces.
        node.ray = [one for one in psutil.Process(1).children() if one.pid not in before]
        self.nodes[node.name] = node


def _do(command: str, inside: Sequence[str] = ()) -> None:
    subprocess.run([*inside, *command.split()], check=True, capture_output=True, text=True)
