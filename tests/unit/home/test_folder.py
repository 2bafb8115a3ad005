import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.store.test_store import add

from mlcd.errors import StoreError
from mlcd.home import (
    close_to_others,
    close_tree,
    home,
    job_environment,
    private_file,
    private_folder,
    write_private,
    write_text,
)
from mlcd.home.envs import forget, keep, kept
from mlcd.store.store import FILE, Store
from mlcd.untrusted import Malformed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes of files are POSIX's")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=["umask 000", "umask 022", "umask 777"], autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, whatever the umask."""
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_what_is_made_is_for_the_owner_only(folder: Path) -> None:
    made = private_folder(folder / "a" / "b")
    assert [mode(path) for path in (made, made.parent)] == [0o700, 0o700]
    assert private_folder(made) == made
    private_file(made / "file")
    write_private(made / "text", "s")
    write_private(made / "text", "t")
    assert (made / "text").read_text() == "t"
    assert [mode(path) for path in sorted(made.iterdir())] == [0o600, 0o600]


def test_a_new_store_is_for_the_owner_only(folder: Path) -> None:
    with Store(folder / "home") as store:
        add(store, "r")
        with store.lock("r"):
            found = {path: mode(path) for path in (folder / "home", *(folder / "home").rglob("*"))}
    assert {path.name for path in found} >= {"home", FILE, f"{FILE}-wal", f"{FILE}-shm", "locks", "r.lock"}
    assert all(value == (0o700 if path.is_dir() else 0o600) for path, value in found.items()), found


def test_an_old_home_is_closed_when_it_is_opened(folder: Path) -> None:
    old = folder / "home"
    Store(old).__exit__(None, None, None)
    (old / "work").mkdir(mode=0o755)
    for path in (old, old / FILE, old / "work"):
        path.chmod(0o777)
    with Store(old) as store:
        add(store, "r")
        assert [mode(old / name) for name in ("", FILE, f"{FILE}-wal", "work")] == [0o700, 0o700, 0o700, 0o700]


def test_a_folder_of_others_stays_as_it_is(folder: Path) -> None:
    shared = folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "letter").touch()
    (shared / "letter").chmod(0o644)
    for name in ("work", "functions", "prices"):
        (shared / name).mkdir()
        (shared / name).chmod(0o755)
    with Store(shared) as store:
        add(store, "r")
        assert (mode(shared), mode(shared / "letter"), mode(shared / FILE)) == (0o1777, 0o644, 0o600)
        assert [mode(shared / name) for name in ("work", "functions", "prices")] == [0o755] * 3
    if os.geteuid() == 0:
        os.chown(shared / FILE, 12345, 12345)
        (shared / FILE).chmod(0o666)
        close_to_others(shared)
        assert mode(shared / FILE) == 0o666


def test_links_are_not_followed(folder: Path) -> None:
    (folder / "outside").touch()
    (folder / "outside").chmod(0o644)
    made = private_folder(folder / "home" / "work")
    (made / "link").symlink_to(folder / "outside")
    (made.parent / "locks").symlink_to(folder / "outside")
    close_tree(made.parent)
    close_to_others(made.parent)
    assert mode(folder / "outside") == 0o644


def test_a_report_is_for_others_unless_it_is_in_the_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.umask(0o022)
    monkeypatch.setenv("MLCD_HOME", str(private_folder(folder / "home")))
    for name in ("report.html", "home/report.html"):
        write_text(folder / name, "<p>")
    assert [mode(folder / name) for name in ("report.html", "home/report.html")] == [0o644, 0o600]


def test_the_home_of_an_unknown_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCD_HOME", "~nosuchuser/x")
    with pytest.raises(StoreError, match=r"MLCD_HOME=~nosuchuser/x: there is no such user"):
        home()


def test_values_are_kept_until_the_run_has_ended(folder: Path) -> None:
    assert kept(folder, "r") == {}
    keep(folder, "r", {})
    assert not (folder / "envs").exists()
    keep(folder, "r", {"TOKEN": "s3cr3t"})
    assert kept(folder, "r") == {"TOKEN": "s3cr3t"}
    assert [mode(folder / name) for name in ("envs", "envs/r.json")] == [0o700, 0o600]
    lease = private_folder(folder / "work" / "r" / "leases" / "l")
    write_private(lease / "job.json", '{"run": "x", "envs": {"TOKEN": "s3cr3t"}}')
    other = private_folder(lease.with_name("m"))
    write_private(other / "job.json", '{"run": "x", "envs": {"TOKEN": "s3cr3t"')
    forget(folder, "r")
    assert (kept(folder, "r"), (other / "job.json").exists()) == ({}, False)
    assert '"TOKEN": ""' in (lease / "job.json").read_text()
    assert mode(lease / "job.json") == 0o600


@pytest.mark.parametrize("text", ["[1]", '{"A": 1}', "{", ""])
def test_values_that_are_damaged_are_named(folder: Path, text: str) -> None:
    write_private(private_folder(folder / "envs") / "r.json", text)
    with pytest.raises(Malformed, match=r"envs/r\.json"):
        kept(folder, "r")


def test_jobs_are_not_told_where_the_records_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCD_HOME", "/somewhere")
    monkeypatch.setenv("MLCD_STORE", "postgresql://ana:secret@host/team")
    monkeypatch.setenv("MLCD_OTHER", "told")
    assert {name for name in job_environment() if name.startswith("MLCD_")} >= {"MLCD_OTHER"}
    assert not {"MLCD_HOME", "MLCD_STORE"} & set(job_environment())
