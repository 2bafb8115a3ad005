"""A Slurm cluster of two nodes on this machine behind an ssh login, as SkyPilot's Slurm cloud wants it. Root, Linux.

The daemons have mount namespaces: an /etc/hosts with the nodes' names, which SkyPilot looks up, and a home of their own
in the place of root's, for SkyPilot writes keys and start-up files into the home of whom it logs in as. Nodes fetch uv
from the web; here a `curl` on their path hands them the one of .venvs/skypilot instead.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.sky_moto import PYTHON, free_port, sky_port

NAMES = ("sky0", "sky1")
CLUSTER = "mini"
PROGRAMS = (
    "slurmctld",
    "slurmd",
    "sbatch",
    "srun",
    "sinfo",
    "scancel",
    "sshd",
    "ssh-keygen",
    "unshare",
    "rsync",
    "curl",
)


def python310() -> Path | None:
    """What SkyPilot's runtime on a node needs; it would be downloaded else."""
    found = [shutil.which("python3.10"), *sorted(map(str, Path.home().glob(".pyenv/versions/3.10*/bin/python3.10")))]
    for path in filter(None, found):
        if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return Path(path)
    return None


def why_not() -> str:
    """Why there can be no such cluster here; "" where there can."""
    if not PYTHON.with_name("uv").exists():
        return ".venvs/skypilot is missing; run: scripts/setup-skypilot"
    if os.geteuid() != 0:
        return "needs root"
    if lacks := [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]:
        return f"not installed: {', '.join(lacks)} (Debian: slurm-wlm openssh-server rsync curl)"
    return "" if python310() else "no Python 3.10 for SkyPilot's runtime on the nodes"


@contextmanager
def sky_slurm(base: Path) -> Iterator[dict[str, str]]:
    """The variables that SkyPilot and mlcd have to run with. Everything is stopped at the end."""
    home, nodes = base / "home", base / "nodes"
    for folder in (home / ".slurm", home / ".ssh", nodes, base / "bin", base / "state"):
        folder.mkdir(parents=True)
    _place_programs(base)
    (nodes / ".bash_profile").write_text(f'export PATH="{base}/bin:$PATH"\n')
    (base / "hosts").write_text(Path("/etc/hosts").read_text() + f"\n127.0.0.1 {' '.join(NAMES)}\n")
    conf, door = base / "slurm.conf", free_port()
    conf.write_text(_configuration(base))
    for name in ("host", "id"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(base / name)], check=True)
    seen = {"SLURM_CONF": str(conf), **_index_settings()}
    (base / "sshd_config").write_text(_login(base, door, seen))
    (home / ".slurm" / "config").write_text(
        f"Host {CLUSTER}\n  HostName 127.0.0.1\n  User root\n  Port {door}\n  IdentityFile {base}/id\n"
        "  IdentitiesOnly yes\n"
    )
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "SKYPILOT_", "KUBE", "GOOGLE_", "MLCD_"))},
        "HOME": str(home),
        "SKYPILOT_API_SERVER_LOCAL_PORT": str(sky_port()),
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        "MLCD_SKY_PYTHON": str(PYTHON),
    }
    daemons: list[subprocess.Popen[bytes]] = []
    inside = {**os.environ, **seen, "HOME": str(_root_home()), "PATH": f"{base}/bin:{_path()}"}
    try:
        Path("/run/sshd").mkdir(exist_ok=True)
        daemons.append(_daemon(base, inside, "slurmctld", "-D", "-f", str(conf)))
        for name in NAMES:
            (base / f"spool-{name}").mkdir()
            daemons.append(_daemon(base, inside, "slurmd", "-D", "-N", name, "-f", str(conf)))
        daemons.append(
            _daemon(base, inside, shutil.which("sshd", path=_path()) or "", "-D", "-f", f"{base}/sshd_config")
        )
        _await_nodes(inside, base)
        yield environment
    finally:
        subprocess.run([str(PYTHON.with_name("sky")), "api", "stop"], env=environment, capture_output=True, check=False)
        subprocess.run(["scancel", "--user=root"], env=inside, capture_output=True, check=False)
        for daemon in reversed(daemons):
            _end(daemon)
        for pid in _inside(base):  # logins of SkyPilot's that outlive the daemon they came through
            os.kill(pid, signal.SIGKILL)


def _place_programs(base: Path) -> None:
    python = python310()
    assert python is not None
    for name in ("python3", "python3.10"):
        (base / "bin" / name).symlink_to(python.resolve())
    (base / "bin" / "python3.11").symlink_to(_own_python())  # for mlcd's own server; uv would download one else
    shutil.copy2(PYTHON.with_name("uv"), base / "bin" / "uv")
    give = f'mkdir -p "$UV_INSTALL_DIR" && cp {base}/bin/uv "$UV_INSTALL_DIR"/uv'
    curl = base / "bin" / "curl"
    curl.write_text(f"""#!/bin/sh
case "$*" in
  *astral.sh*) echo '{give}' ;;
  *) exec {shutil.which("curl")} "$@" ;;
esac
""")
    curl.chmod(0o755)


def _configuration(base: Path) -> str:
    host = socket.gethostname()
    lines = [
        "ClusterName=skytest",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={free_port()}",
        "AuthType=auth/none",
        "CredType=cred/none",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "SlurmUser=root",
        "SlurmdUser=root",
        f"StateSaveLocation={base}/state",
        f"SlurmdSpoolDir={base}/spool-%n",
        f"SlurmctldPidFile={base}/slurmctld.pid",
        f"SlurmdPidFile={base}/slurmd-%n.pid",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        *(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=2 RealMemory=4000"
            for name in NAMES
        ),
        f"PartitionName=small Nodes={','.join(NAMES)} Default=YES State=UP DefaultTime=30 MaxTime=60",
    ]
    return "\n".join(lines) + "\n"


def _login(base: Path, port: int, seen: dict[str, str]) -> str:
    lines = [
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {base}/host",
        f"AuthorizedKeysFile {base}/id.pub",
        "PermitRootLogin yes",
        "StrictModes no",
        "UsePAM no",
        f"PidFile {base}/sshd.pid",
        "PrintMotd no",
        "SetEnv " + " ".join(f"{name}={value}" for name, value in seen.items()),
        "Subsystem sftp internal-sftp",
    ]
    return "\n".join(lines) + "\n"


def _index_settings() -> dict[str, str]:
    """Where packages come from, as pip is told here, in uv's words."""
    certificates = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE")
    given = {"SSL_CERT_FILE": certificates, "UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS")}
    index = os.environ.get("PIP_INDEX_URL")
    return {name: value for name, value in {**given, "UV_DEFAULT_INDEX": index}.items() if value}


def _daemon(base: Path, env: dict[str, str], *command: str) -> subprocess.Popen[bytes]:
    """In a mount namespace of its own, so that it changes nothing here."""
    python, home = python310(), _root_home()
    assert python is not None
    steps = [f"mount --bind {base}/hosts /etc/hosts"]
    for prefix in {python.resolve().parents[1], _own_python().parents[1]}:
        if prefix.is_relative_to(home):  # it would vanish behind the other home
            inside = base / "nodes" / prefix.relative_to(home)
            inside.mkdir(parents=True, exist_ok=True)
            steps.append(f"mount --bind {prefix} {inside}")
    steps += [f"mount --rbind {base}/nodes {home}", f"cd {home}", 'exec "$@"']
    words = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        " && ".join(steps),
        "sh",
    ]
    with (base / "daemons.log").open("ab") as log:
        return subprocess.Popen([*words, *command], env=env, stdout=log, stderr=log)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(10)
    except subprocess.TimeoutExpired:  # slurmctld may wait long for nodes that are gone already
        daemon.kill()
        daemon.wait()


def _inside(base: Path) -> list[int]:
    """Living processes in the daemons' mount namespaces, known by the hosts file there."""
    found = []
    for mounts in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            if f"{base}/hosts" in mounts.read_text():
                found.append(int(mounts.parent.name))
        except OSError:  # it ended just now
            continue
    return found


def _own_python() -> Path:
    return Path(sys.executable).resolve()


def _root_home() -> Path:
    return Path(pwd.getpwuid(0).pw_dir)


def _await_nodes(env: dict[str, str], base: Path) -> None:
    give_up = time.monotonic() + 60
    while True:
        answer = subprocess.run(["sinfo", "-h", "-o", "%T %D"], env=env, capture_output=True, text=True, check=False)
        if answer.stdout.split() == ["idle", str(len(NAMES))]:
            return
        assert time.monotonic() < give_up, f"{answer.stdout}{answer.stderr}{(base / 'daemons.log').read_text()[-2000:]}"
        time.sleep(0.5)


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
