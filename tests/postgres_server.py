"""A PostgreSQL server of the tests' own, from Debian's package: `scripts/setup-postgres` installs it."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from mlcd.store.team import make_store

OWNER = "team_owner"
PATIENCE_SECONDS = 60.0
_SETTINGS = {
    "fsync": "off",  # a killed server loses nothing by that: the system has what it wrote
    "max_connections": "60",
    "shared_buffers": "16MB",
    "log_min_messages": "fatal",
    "restart_after_crash": "on",
}


def missing() -> str:
    """Why no server can be started here; "" where one can."""
    if _programs() is None:
        return "no PostgreSQL server is installed: scripts/setup-postgres"
    if os.geteuid() == 0 and _other_user() is None:
        return "PostgreSQL does not run as root, and there is no user `postgres` or `nobody`"
    return ""


class Server:
    """One server in a folder of its own, on a port of 127.0.0.1. `kill` and `start` may follow each other."""

    def __init__(self) -> None:
        found = _programs()
        assert found is not None, missing()
        self._bin = found
        self._user = _other_user() if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="mlcd-postgres-"))
        if self._user is not None:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        self.port = _free_port()
        self._run([str(self._bin / "initdb"), "-D", self._data, "-U", OWNER, "-A", "trust", "-N", "-E", "UTF8",
                   "--no-instructions", "--locale=C.UTF-8"])  # fmt: skip
        lines = [f"{name} = {value}" for name, value in _SETTINGS.items()]
        config = Path(self._data, "postgresql.auto.conf")
        config.write_text("\n".join([*lines, f"port = {self.port}", f"unix_socket_directories = '{self._folder}'"]))
        self.start()

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def url(self, database: str = "postgres", user: str = OWNER) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def new_store(self) -> str:
        """An empty store, in place of the last one that this made; its address."""
        self.sql("DROP SCHEMA IF EXISTS mlcd CASCADE")
        make_store(self.url(), what="the tests")
        return self.url()

    def sql(self, *statements: str, user: str = OWNER) -> list[tuple[Any, ...]]:
        """Run statements; the rows of the last one."""
        with psycopg.connect(self.url(user=user), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def set_login(self, method: str) -> None:
        """How all but the owner prove who they are: trust or password."""
        lines = [f"host all {OWNER} 127.0.0.1/32 trust", f"host all all 127.0.0.1/32 {method}"]
        Path(self._data, "pg_hba.conf").write_text("\n".join(lines) + "\n")
        self.sql("SELECT pg_reload_conf()")
        time.sleep(0.1)  # the server reads it in its own time

    def start(self) -> None:
        """As our own child, so that it is gone once it was killed and waited for."""
        with (self._folder / "log").open("ab") as log:
            command = self._command([str(self._bin / "postgres"), "-D", self._data])
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                psycopg.connect(self.url()).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self._folder / "log").read_text()
                assert time.monotonic() < until, "the server does not answer"
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """As its administrator would, without waiting for those who are connected."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(PATIENCE_SECONDS)

    def kill(self) -> None:
        """SIGKILL to the server and all its processes."""
        pid = self._process.pid
        children = _children(pid)
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)
        for each in children:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        until = time.monotonic() + PATIENCE_SECONDS
        while any(_is_there(each) for each in children):
            assert time.monotonic() < until, "the server does not end"
            time.sleep(0.01)

    def remove(self) -> None:
        """End it and remove its folder."""
        if self._process.poll() is None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _command(self, command: Sequence[str]) -> list[str]:
        if self._user is None:
            return list(command)
        ids = ["--reuid", str(self._user.pw_uid), "--regid", str(self._user.pw_gid), "--clear-groups"]
        return ["setpriv", *ids, *command]

    def _run(self, command: Sequence[str]) -> None:
        with (self._folder / "output").open("wb") as output:  # a pipe would be held open by the server
            done = subprocess.run(
                self._command(command), check=False, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=self._folder, timeout=PATIENCE_SECONDS,
            )  # fmt: skip
        assert done.returncode == 0, f"{command[0]}: {(self._folder / 'output').read_text()}"


def _programs() -> Path | None:
    """The folder with the server's programs, of the newest version: Debian does not put them on PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: float(file.parts[-3]))
    if found:
        return found[-1].parent
    here = shutil.which("initdb")
    return Path(here).resolve().parent if here else None


def _other_user() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(each) for each in found.read_text().split()] if found.exists() else []


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
