"""Servers on nodes that have nothing of this machine: what goes there, and the tunnel through which they are loaded.

The nodes are processes of this machine in folders of their own; `ssh` is a program that forwards as ssh does.
"""

import contextlib
import os
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tiny_onnx import write_mlp

from mlcd.clouds.local import Local
from mlcd.clouds.nodes import NodeOrder, Nodes
from mlcd.clouds.provider import LeaseFailed, Order
from mlcd.clouds.serving.command import CommandServing
from mlcd.clouds.serving.local import LocalServing
from mlcd.clouds.serving.on_nodes import NodeServers, NodeServing
from mlcd.clouds.shipping import SERVER, ship
from mlcd.clouds.skypilot.tunnel import Tunnel
from mlcd.space import Config

TIMEOUT_SECONDS = 120.0
FAKE_SSH = """#!{python}
import os, socket, sys, threading
words = sys.argv[1:]
print("ssh:", *words, file=sys.stderr, flush=True)
if "nowhere" in words:
    sys.exit("ssh: Could not resolve hostname nowhere")
here, port, there, far = words[words.index("-L") + 1].split(":")

def pour(a, b):
    while data := a.recv(65536):
        b.sendall(data)
    b.shutdown(socket.SHUT_WR)

def forward(listener):
    while True:
        one, _ = listener.accept()
        try:
            other = socket.create_connection((there, int(far)))
        except OSError:
            one.close()
            continue
        for pair in ((one, other), (other, one)):
            threading.Thread(target=pour, args=pair, daemon=True).start()

listener = socket.create_server((here, int(port)))
threading.Thread(target=forward, args=(listener,), daemon=True).start()
assert words[-1] == "cat"
sys.stdin.read()
"""
SERVER_SCRIPT = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        model = Path(os.environ["MODEL"])
        text = f"{os.environ['SEQS']} {model} {(model / 'weights').read_text()} {Path('set-up').read_text()}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass

HTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Answers).serve_forever()
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(FAKE_SSH.replace("{python}", sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))


def page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as found:
        return str(found.read().decode())


@contextlib.contextmanager
def served() -> Iterator[int]:
    """The port of a server of this folder's files."""
    command = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline().split(" port ")[1].split()[0])
        server.terminate()


def until(condition: object) -> None:
    give_up = time.monotonic() + TIMEOUT_SECONDS
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < give_up
        time.sleep(0.05)


def is_open(tunnel: Tunnel) -> bool:
    try:
        return bool(page(f"http://{tunnel.place}"))
    except OSError:
        return False


@pytest.mark.usefixtures("ssh")
def test_a_tunnel_leads_to_the_node_until_it_is_closed(tmp_path: Path) -> None:
    with served() as port:
        tunnel = Tunnel("mlcd-x", "127.0.0.1", port, log=tmp_path / "log")
        until(lambda: is_open(tunnel))
        assert tunnel.fault == ""
        assert tunnel.place.startswith("127.0.0.1:")  # nobody else reaches it
        tunnel.close()
        tunnel.close()
        assert not is_open(tunnel)
    said = (tmp_path / "log").read_text()
    assert f"-L {tunnel.place}:127.0.0.1:{port} mlcd-x cat" in said
    assert "BatchMode=yes" in said
    assert "ExitOnForwardFailure=yes" in said


@pytest.mark.usefixtures("ssh")
def test_a_tunnel_that_ends_says_why(tmp_path: Path) -> None:
    tunnel = Tunnel("nowhere", "127.0.0.1", 1, log=tmp_path / "log")
    until(lambda: tunnel.fault)
    assert tunnel.fault == "the ssh tunnel to nowhere ended: ssh: Could not resolve hostname nowhere"
    tunnel.close()


DRIVER = """
import sys, time
from pathlib import Path
from mlcd.clouds.skypilot.tunnel import Tunnel
tunnel = Tunnel("mlcd-x", "127.0.0.1", 1, log=Path(sys.argv[1]))
print(tunnel._ssh.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.usefixtures("ssh")
def test_a_tunnel_does_not_outlive_a_killed_mlcd(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as mlcd:
        assert mlcd.stdout is not None
        pid = int(mlcd.stdout.readline())
        until(lambda: "ssh:" in (tmp_path / "log").read_text())
        mlcd.kill()
    until(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class FarAway(Local):
    """This machine's nodes, reached as a cloud's are."""

    tunnels: list[Tunnel]

    def start(self, order: NodeOrder) -> Nodes:
        nodes, self.tunnels = super().start(order), []

        def reach(rank: int, address: str, port: int) -> str:
            while len(self.tunnels) <= rank:
                self.tunnels.append(Tunnel(f"node-{rank}", address, port, log=order.folder / "tunnel.log"))
            return self.tunnels[rank].place

        nodes.reach = reach  # type: ignore[attr-defined]
        return nodes


def command(tmp_path: Path, run: str, **given: object) -> CommandServing:
    folder, model = tmp_path / "job", tmp_path / "tiny model"
    folder.mkdir()
    model.mkdir()
    (folder / "server.py").write_text(SERVER_SCRIPT)
    (model / "weights").write_text("w8s")
    return CommandServing(
        run,
        home=tmp_path / "home",
        noise=0.0,
        folder=tmp_path / "not-there",
        workdir=folder,
        model=str(model),
        ready="/",
        **given,  # type: ignore[arg-type]
    )


def on_far_nodes(tmp_path: Path, program: CommandServing) -> NodeServers:
    engine = FarAway(tmp_path / "home", cpus=(0, 0))
    cloud = NodeServing(
        engine, program, noise=0.0, is_here=False, shares_files=False, secrets={"HF_TOKEN": "hf_s3cr3t"}
    )
    config = Config.of({"instance": "local.1", "nodes": 2, "SEQS": 16})
    return cloud.lease(Order(config=config, seconds=300.0, run_id="toy-1"))


@pytest.mark.usefixtures("ssh")
def test_the_folder_the_model_and_the_setup_go_to_the_nodes(tmp_path: Path) -> None:
    run = f"exec {shlex.quote(sys.executable)} server.py"
    lease = on_far_nodes(tmp_path, command(tmp_path, run, setup='echo "set up" > set-up'))
    with lease:
        give_up = time.monotonic() + TIMEOUT_SECONDS
        for _ in lease.progress():
            assert time.monotonic() < give_up
        found = lease.endpoint
        tunnels = lease.cloud.engine.tunnels  # type: ignore[attr-defined]
        assert [address.removeprefix("http://") for address in found.addresses] == [t.place for t in tunnels]
        assert not found.shares_cpus
        assert found.model == "mlcd-model/tiny model"
        assert [page(address) for address in found.addresses] == ["16 mlcd-model/tiny model w8s set up\n"] * 2
        for tunnel in tunnels:
            tunnel.close()
    assert not (lease.folder / "workdir").exists()
    assert (tmp_path / "tiny model" / "weights").read_text() == "w8s"


def test_the_model_is_not_written_through_links_of_the_folder(tmp_path: Path) -> None:
    program = command(tmp_path, "exit 3")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "weights").write_text("kept")
    (tmp_path / "job" / "mlcd-model").symlink_to(theirs)
    with pytest.raises(LeaseFailed, match="is reached through a link"), on_far_nodes(tmp_path, program):
        pass
    (tmp_path / "job" / "mlcd-model").unlink()
    (tmp_path / "job" / "mlcd-model").mkdir()
    (tmp_path / "job" / "mlcd-model" / "tiny model").symlink_to(theirs)
    lease = on_far_nodes(tmp_path, program)
    lease._prepare_folder()
    assert (lease.folder / "workdir" / "mlcd-model" / "tiny model" / "weights").read_text() == "w8s"
    assert [(each.name, each.read_text()) for each in theirs.iterdir()] == [("weights", "kept")]


def test_a_model_of_one_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    program = command(tmp_path, "exit 3")
    program.model = str(tmp_path / "m.gguf")
    (tmp_path / "m.gguf").write_text("w8s")
    (tmp_path / "theirs").write_text("kept")
    (tmp_path / "job" / "mlcd-model").mkdir()
    (tmp_path / "job" / "mlcd-model" / "m.gguf").symlink_to(tmp_path / "theirs")
    lease = on_far_nodes(tmp_path, program)
    lease._prepare_folder()
    assert (lease.folder / "workdir" / "mlcd-model" / "m.gguf").read_text() == "w8s"
    assert (tmp_path / "theirs").read_text() == "kept"


@pytest.mark.usefixtures("ssh")
def test_a_secret_in_the_servers_last_words_is_not_told(tmp_path: Path) -> None:
    lease = on_far_nodes(tmp_path, command(tmp_path, "echo 401 for hf_s3cr3t; exit 3"))
    with lease, pytest.raises(LeaseFailed, match="401 for") as failed:
        for _ in lease.progress():
            pass
    assert "hf_s3cr3t" not in failed.value.message


def test_a_model_of_a_hub_keeps_its_name_and_nothing_is_copied(tmp_path: Path) -> None:
    program = CommandServing("serve $PORT", home=tmp_path, noise=0.0, folder=tmp_path, model="org/llama")
    there = program.on_node(Config.of({"SEQS": 1}), shares_files=False)
    assert (there.env["MODEL"], there.model, there.files, there.folder) == ("org/llama", "org/llama", {}, None)


def test_mlcds_own_server_takes_its_packages_and_the_model_along(tmp_path: Path) -> None:
    model = write_mlp(tmp_path / "tiny.onnx")
    serving = LocalServing(model, home=tmp_path / "home", noise=0.0)
    knobs = {"batch": 4, "threads": 1, "replicas": 1}
    plain = serving.on_node(Config.of({**knobs, "precision": "fp32"}), shares_files=False)
    assert plain.files == {"mlcd-model/tiny.onnx": model}
    assert "--python '>=3.11'" in plain.setup
    assert "onnxruntime==" in plain.setup
    assert "mlcd-model/tiny.onnx --name tiny --batch 4" in plain.run
    small = serving.on_node(Config.of({**knobs, "precision": "int8"}), shares_files=False)
    ((place, source),) = small.files.items()
    assert source.parent == tmp_path / "home" / "quantised"
    assert f"{place} --name tiny" in small.run
    assert "--precision fp32" in small.run  # the file is quantised already
    assert small.model == "tiny"


def test_the_shipped_server_starts_without_mlcd_installed(tmp_path: Path) -> None:
    """The files that a rented node gets are all that mlcd's own server needs of mlcd."""
    model = write_mlp(tmp_path / "tiny.onnx")
    folder = ship(tmp_path, SERVER)
    script = (
        f"import sys; sys.path = [p for p in sys.path if 'mlcd' not in p.lower()]; sys.path.insert(0, {str(folder)!r});"
        "import mlcd, runpy; assert mlcd.__file__.startswith(sys.path[0]), mlcd.__file__;"
        f"sys.argv = ['mlcd.server', {str(model)!r}, '--batch', '1', '--port', '0'];"
        "runpy.run_module('mlcd.server', run_name='__main__')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
    ) as server:
        assert server.stdout is not None
        said = server.stdout.readline()
        server.terminate()
    assert '"address"' in said, said
