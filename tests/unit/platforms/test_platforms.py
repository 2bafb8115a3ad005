"""The variables of each platform's processes."""

import json
import socket
from pathlib import Path

import pytest

from mlcd.platforms.interface import interface_of
from mlcd.platforms.placement import PORTS, Placement, Process
from mlcd.platforms.registry import NAMES, TOPOLOGIES, UnknownPlatform, platform

LOCAL = ("127.0.0.1",) * 3
CLUSTER = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


def place(rank: int, addresses: tuple[str, ...] = CLUSTER, *, form: str = "ring", gpus: int = 0) -> Placement:
    return Placement(rank=rank, addresses=addresses, port=29500, topology=form, gpus=gpus)


def config(process: Process) -> tuple[dict[str, list[str]], dict[str, object]]:
    loaded = json.loads(process.env["TF_CONFIG"])
    return loaded["cluster"], loaded["task"]


def test_pytorch_has_the_variables_of_torchrun() -> None:
    (process,) = platform("pytorch")(place(2))
    expected = {
        "RANK": "2",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "2",
        "NODE_RANK": "2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
    }
    assert expected.items() <= process.env.items()
    assert process.role == "worker"
    assert process.essential


def test_pytorch_runs_one_process_per_gpu() -> None:
    ranks = [
        (process.env["RANK"], process.env["LOCAL_RANK"], process.env["WORLD_SIZE"])
        for rank in range(3)
        for process in platform("pytorch")(place(rank, gpus=2))
    ]
    assert ranks == [(str(rank), str(rank % 2), "6") for rank in range(6)]


def test_pytorch_uses_the_interface_of_its_address() -> None:
    (process,) = platform("pytorch")(place(1, LOCAL))
    assert process.env["GLOO_SOCKET_IFNAME"] == interface_of("127.0.0.1")
    (elsewhere,) = platform("pytorch")(place(1, ("203.0.113.1", "203.0.113.2")))
    assert "GLOO_SOCKET_IFNAME" not in elsewhere.env, "no interface of this machine has that address"


def test_interfaces_are_found_by_their_addresses() -> None:
    assert interface_of("127.0.0.1") in [name for _, name in socket.if_nameindex()]
    assert interface_of("203.0.113.9") is None


def test_tensorflow_ring_gives_each_worker_its_own_port_on_one_machine() -> None:
    for rank in range(3):
        (process,) = platform("tensorflow")(place(rank, LOCAL))
        cluster, task = config(process)
        assert cluster == {"worker": ["127.0.0.1:29500", "127.0.0.1:29501", "127.0.0.1:29502"]}
        assert task == {"type": "worker", "index": rank}
        assert process.essential


def test_tensorflow_ring_uses_one_port_where_each_node_has_its_address() -> None:
    (process,) = platform("tensorflow")(place(2))
    assert config(process)[0] == {"worker": ["10.0.0.1:29500", "10.0.0.2:29500", "10.0.0.3:29500"]}


def test_tensorflow_ps_ends_with_the_chief() -> None:
    head = platform("tensorflow")(place(0, LOCAL, form="ps"))
    assert [(process.role, process.essential) for process in head] == [
        ("ps", False),
        ("worker", False),
        ("chief", True),
    ]
    (other,) = platform("tensorflow")(place(2, LOCAL, form="ps"))
    assert (other.role, other.essential) == ("worker", False)
    clusters = [config(process)[0] for process in (*head, other)]
    assert all(cluster == clusters[0] for cluster in clusters)
    addresses = [address for task in clusters[0].values() for address in task]
    assert len(addresses) == len(set(addresses)) == 5
    assert all(29500 <= int(address.split(":")[1]) < 29500 + PORTS for address in addresses)
    assert config(other)[1] == {"type": "worker", "index": 2}


def test_the_nodes_of_a_server_know_each_other() -> None:
    addresses = ("a", "b", "c", "d", "e")  # two servers of two nodes, and one that sends the load
    envs = []
    for rank in range(5):
        (process,) = platform("server")(Placement(rank=rank, addresses=addresses, port=100, server_nodes=2))
        envs.append(dict(process.env))
    assert envs[0] == {
        "HOST": "a",
        "PORT": "100",
        "NODES": "2",
        "NODE_RANK": "0",
        "HEAD": "a",
        "HEAD_PORT": "105",
        "ADDRESSES": "a,b",
    }
    assert [env["NODE_RANK"] for env in envs] == ["0", "1", "0", "1", "0"]
    assert [env["HEAD"] for env in envs] == ["a", "a", "c", "c", "e"]
    assert [env["HEAD_PORT"] for env in envs] == ["105", "105", "106", "106", "107"]
    ports = [*(env["PORT"] for env in envs), *{env["HEAD_PORT"] for env in envs}]
    assert len(set(ports)) == 8
    (alone,) = platform("server")(Placement(rank=0, addresses=("a",), port=100))
    assert dict(alone.env) == {"HOST": "a", "PORT": "100"}


def test_mxnet_has_scheduler_and_server_on_the_first_node() -> None:
    head, other = (platform("mxnet")(place(rank, form="ps")) for rank in (0, 1))
    assert [(process.env["DMLC_ROLE"], process.essential) for process in head] == [
        ("scheduler", False),
        ("server", False),
        ("worker", True),
    ]
    assert [process.env["DMLC_ROLE"] for process in other] == ["worker"]
    expected = {
        "DMLC_PS_ROOT_URI": "10.0.0.1",
        "DMLC_PS_ROOT_PORT": "29500",
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": "3",
    }
    for process in (*head, *other):
        assert expected.items() <= process.env.items()
    assert head[0].env["DMLC_NODE_HOST"] == "10.0.0.1"
    assert other[0].env["DMLC_NODE_HOST"] == "10.0.0.2"


def test_mxnets_ring_has_horovods_variables_and_a_rendezvous_on_the_first_node() -> None:
    head, other = (platform("mxnet")(place(rank, form="ring")) for rank in (0, 2))
    assert [(process.role, process.essential) for process in head] == [("rendezvous", False), ("worker", True)]
    assert head[0].command[-3:] == ("serve", "10.0.0.1", "29500")
    assert [process.role for process in other] == ["worker"]
    for rank, worker in (("0", head[1]), ("2", other[0])):
        assert worker.prefix[-3:] == ("await", "10.0.0.1", "29500")
        expected = {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": "29500",
            "HOROVOD_RANK": rank,
            "HOROVOD_SIZE": "3",
            "HOROVOD_LOCAL_RANK": "0",
            "HOROVOD_LOCAL_SIZE": "1",
            "HOROVOD_CROSS_RANK": rank,
            "HOROVOD_CROSS_SIZE": "3",
        }
        assert expected.items() <= worker.env.items()
    names = {platform("mxnet")(place(rank, LOCAL, form="ring"))[-1].env["HOROVOD_HOSTNAME"] for rank in range(3)}
    assert len(names) == 3  # although the address is the same
    (local,) = platform("mxnet")(place(1, LOCAL, form="ring"))
    assert local.env["HOROVOD_GLOO_IFACE"] == interface_of("127.0.0.1")


def test_a_command_has_one_process_and_no_variables() -> None:
    assert platform("command")(place(1, gpus=4)) == (Process(),)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_every_platform_has_something_essential_on_the_first_node(name: str, nodes: int) -> None:
    for form in TOPOLOGIES[name]:
        started = platform(name)(place(0, ("127.0.0.1",) * nodes, form=form))
        assert any(process.essential for process in started)


def test_an_unknown_platform_suggests_the_nearest() -> None:
    with pytest.raises(UnknownPlatform, match=r"'pytorhc'; allowed: pytorch, .*; did you mean 'pytorch'\?"):
        platform("pytorhc")


def test_every_variable_is_documented() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "platforms.md").read_text(encoding="utf-8")
    for name in NAMES:
        for form in TOPOLOGIES[name]:
            for process in platform(name)(place(0, LOCAL, form=form, gpus=1)):
                assert [variable for variable in process.env if f"`{variable}" not in page] == []
