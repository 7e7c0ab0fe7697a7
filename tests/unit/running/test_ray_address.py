"""Which addresses are those of a cluster that is there already."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.planning.config import SweepConfig
from orchestrator.planning.prechecks import mistakes
from orchestrator.running import ray_address as ray_address_module
from orchestrator.running.early_start import checked_config
from orchestrator.running.options import VerbOptions
from orchestrator.running.ray_address import advice, is_elsewhere, ray_address, why_unreachable
from tests.support.config_files import config_of


@pytest.mark.parametrize(
    ("address", "variable", "joined"),
    [
        (None, "", "local"),
        ("local", "auto", "local"),
        (None, "local", "local"),
        ("auto", "10.0.0.1:6379", "auto"),
        (None, "10.0.0.1:6379", "10.0.0.1:6379"),
    ],
)
def test_cluster_is_joined_only_where_it_is_named(monkeypatch, address, variable, joined):
    monkeypatch.setenv("RAY_ADDRESS", variable)
    assert ray_address(address) == joined
    assert is_elsewhere(address) == (joined != "local")


def test_refusal_of_a_cluster_names_what_its_token_needs():
    assert "needs RAY_AUTH_MODE=token here" in advice("Failed to connect to Ray cluster at x:1")
    assert "same Python and Ray" in advice("Version mismatch: the cluster was started with ...")


@pytest.mark.parametrize(
    ("said", "tls", "is_ray"),
    [
        (bytes([0, 0, 24, 4, 0, 0, 0, 0, 0]), "0", True),  # as a GCS server of Ray 2.60
        (b"SSH-2.0-OpenSSH_9.6\r\n", "0", False),
        (b"", "0", False),
        (b"", "1", True),
    ],
)
def test_what_answers_as_no_server_of_ray_is_found_at_once(monkeypatch, said, tls, is_ray):
    if not said:
        monkeypatch.setattr(ray_address_module, "ANSWER_SECONDS", 0.2)
    monkeypatch.setenv("RAY_USE_TLS", tls)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with ThreadPoolExecutor() as pool:
            reason = pool.submit(why_unreachable, address)
            connection, _ = server.accept()
            with connection:
                connection.sendall(said)
                assert ("is no server of Ray" in reason.result()) == (not is_ray)


@pytest.mark.parametrize(("address", "elsewhere"), [("local", False), ("auto", True)])
def test_files_are_checked_as_those_of_this_machine_if_the_address_is_local(
    monkeypatch, tmp_path, address, elsewhere
):
    config_of(tmp_path)
    asked = []

    def check_files(config: SweepConfig, *, runs_elsewhere: bool, asks_hub: bool) -> list[str]:
        asked.append(runs_elsewhere)
        return []

    monkeypatch.setattr(mistakes, "check_files", check_files)
    checked_config(VerbOptions(config=tmp_path / "sweep.yaml", address=address), print)
    assert asked == [elsewhere]
