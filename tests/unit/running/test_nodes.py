"""What a cluster has: GPU models, slots, and what a trial reserves."""

from dataclasses import replace

import pytest

from jobs.spec import Needs
from orchestrator.running.nodes import Cluster, Node, NoSuchGpuError, Placement
from tests.conftest import build_tiny_spec


def node(node_id: str, gpus: int, model: str = "NVIDIA H200", **given: int) -> Node:
    """A node with eight cores."""
    environment = {"gpu_model": model if gpus else "", "cpu_model": "a processor"}
    resources = {"cpus": 8, "host_bytes": 8, **given}
    return Node(node_id=node_id, address=node_id, gpus=gpus, environment=environment, **resources)


HEAD = node("head", 0)
A100 = "NVIDIA A100-SXM4-40GB"


def test_hardware_is_that_of_the_nodes_that_run_trials():
    assert Cluster(nodes=(HEAD, node("a", 8))).hardware == "NVIDIA H200"
    bare = Cluster(nodes=(HEAD, node("b", 0)))
    assert bare.hardware == "a processor"
    assert bare.by_hardware() == (bare,)
    assert bare.slots == 2


def test_unlike_gpus_are_clusters_of_their_own():
    nodes = (
        HEAD,
        node("a", 8),
        node("b", 4),
        node("c", 8, A100),
        node("d", 7, f"{A100} MIG 1g.5gb"),
    )
    whole, sliced, h200 = Cluster(nodes=nodes).by_hardware()
    assert [own.address for own in h200.nodes] == ["a", "b"]
    assert [part.gpus for part in (whole, sliced, h200)] == [8, 7, 12]
    assert all(part.pinned for part in (whole, sliced, h200))
    assert h200.hardware == "NVIDIA H200"
    assert Cluster(nodes=nodes).slots_by_model() == {
        A100: 8,
        f"{A100} MIG 1g.5gb": 7,
        "NVIDIA H200": 12,
    }


@pytest.mark.parametrize(
    ("word", "name", "is_called"),
    [
        ("a10", "NVIDIA A10", True),
        ("A10", "NVIDIA A100-SXM4-80GB", False),
        ("A10", "NVIDIA A10G", False),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("L4", "NVIDIA L40S", False),
        ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
    ],
)
def test_words_of_gpu_names_are_whole_words(word, name, is_called):
    cluster = Cluster(nodes=(), allowed_models=(word,))
    assert cluster.is_new_model(name) is is_called


def test_config_may_name_gpu_models():
    whole = Cluster(nodes=(HEAD, node("a", 8), node("b", 4, A100)))
    assert whole.only(()) is whole
    chosen = whole.only(["h200"])
    assert (chosen.slots_by_model(), chosen.pinned, chosen.gpus) == ({"": 8}, True, 8)
    with pytest.raises(NoSuchGpuError, match="no node has a GPU called B200: there is"):
        whole.only(["B200"])


def test_new_model_is_one_that_is_allowed_and_was_not_there():
    whole = Cluster(nodes=(HEAD, node("a", 8), node("b", 4, A100)))
    assert whole.is_new_model("B200")
    assert not whole.is_new_model(A100)
    assert not whole.only(["h200"]).is_new_model(A100)
    part = whole.by_hardware()[0]
    assert not part.is_new_model("NVIDIA H200"), "another part has it"


def test_slots_leave_out_gpus_that_were_set_aside():
    assert Cluster(nodes=(replace(node("a", 8), set_aside=2),)).slots == 6


def test_trial_reserves_its_gpus_share_of_the_smallest_node():
    cluster = Cluster(nodes=(HEAD, node("a", 2, cpus=16), node("b", 1, cpus=4, host_bytes=2)))
    assert cluster.needs(Needs(cpus=0)) == Needs(gpus=1, cpus=4, host_bytes=2)
    assert cluster.needs(Needs(cpus=3, host_bytes=1)) == Needs(gpus=1, cpus=3, host_bytes=1)
    bare = Cluster(nodes=(HEAD,))
    assert bare.needs(Needs()) == Needs(gpus=0, cpus=8, host_bytes=8)


def test_trials_of_several_gpus_are_for_nodes_that_have_as_many():
    whole = Cluster(nodes=(HEAD, node("a", 1), node("b", 5, cpus=16)))
    assert whole.with_gpus_per_trial(1) == whole
    pairs = whole.with_gpus_per_trial(2)
    assert (pairs.slots, pairs.needs(Needs())) == (2, Needs(gpus=2, cpus=8, host_bytes=4))
    assert pairs.placement(Needs()).label_selector == "in(head,b)"
    with pytest.raises(NoSuchGpuError, match="gpus_per_trial is 6, and no node has so many"):
        whole.with_gpus_per_trial(6)
    assert Cluster(nodes=(HEAD,)).with_gpus_per_trial(2).needs(Needs()).gpus == 0


def test_placement_names_nodes_only_if_there_are_others():
    whole = Cluster(nodes=(node("a", 2), node("b", 1, A100)))
    assert whole.placement(Needs()).label_selector == ""
    parts = [part.placement(Needs(cpus=4)) for part in whole.by_hardware()]
    assert [part.label_selector for part in parts] == ["in(b)", "in(a)"]
    assert parts[0].bundle == {"CPU": 4.0, "GPU": 1.0, "memory": 8.0}


def test_placement_keeps_a_trials_own_nvme_path():
    spec = build_tiny_spec()
    spec = replace(spec, needs=Needs(nvme_path="/nvme"))
    placement = Placement(needs=Needs(gpus=1, cpus=4), hardware="NVIDIA H200")
    assert placement.applied_to(spec).needs == Needs(gpus=1, cpus=4, nvme_path="/nvme")
