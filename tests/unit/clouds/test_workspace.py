"""Checkpoints and outputs are fetched completely, also on a full disk and while the job saves."""

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcd.clouds import workspace
from mlcd.clouds.workspace import MOST_CHECKPOINTS, Workspace, copy_or_move, copy_workdir, furthest
from mlcd.untrusted import Malformed, copy_tree


def checkpoint(folder: Path, samples: int, *, mark: bool = True) -> Path:
    path = folder / f"step-{samples}"
    path.mkdir(parents=True)
    (path / "weights").write_text(str(samples))
    if mark:
        (path / "mlcd.json").write_text(json.dumps({"samples": samples}))
    return path


@pytest.fixture
def warned() -> list[str]:
    return []


@pytest.fixture
def space(tmp_path: Path, warned: list[str]) -> Workspace:
    return Workspace(tmp_path, "run-1", warned.append)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk without room for a copy."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(workspace, "copy_tree", refuse)


def test_the_furthest_complete_checkpoint_counts(tmp_path: Path) -> None:
    assert furthest(tmp_path, below=tmp_path) is None
    assert furthest(tmp_path / "gone", below=tmp_path) is None
    checkpoint(tmp_path, 90)
    checkpoint(tmp_path, 100)
    checkpoint(tmp_path, 200, mark=False)
    (checkpoint(tmp_path, 300) / "mlcd.json").write_text('{"sam')
    assert furthest(tmp_path, below=tmp_path) == (100.0, tmp_path / "step-100")


def test_a_lease_continues_from_the_last_checkpoint(space: Workspace) -> None:
    assert space.copy_checkpoint(space.lease("a") / "checkpoint") == 0.0
    checkpoint(space.lease("a") / "checkpoint", 100)
    space.adopt(space.lease("a") / "checkpoint")
    assert space.reached_samples() == 100.0
    assert space.copy_checkpoint(space.lease("b") / "checkpoint") == 100.0
    assert (space.lease("b") / "checkpoint" / "step-100" / "weights").read_text() == "100"


def test_earlier_checkpoints_are_not_adopted_and_older_ones_are_deleted(space: Workspace) -> None:
    for lease, samples in (("a", 100), ("b", 50), ("c", 120)):
        checkpoint(space.lease(lease) / "checkpoint", samples)
    (space.checkpoint / "part-step-7").mkdir(parents=True)  # of an mlcd that was killed
    assert space.reached_samples() == 120.0  # including checkpoints of leases that died with mlcd
    assert [path.name for path in space.checkpoint.iterdir()] == ["step-120"]


def test_leases_that_end_at_the_same_time_do_not_disturb_each_other(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials of one round save from their own threads: each is copied whole, and the furthest stays."""
    made = {samples: checkpoint(space.lease(f"of-{samples}") / "checkpoint", samples) for samples in (100, 200)}
    second = threading.Thread(target=space.adopt, args=[made[200].parent])

    def slow(source: Path, target: Path, **others: Any) -> None:
        copy_tree(source, target, **others)
        if source == made[100]:
            second.start()
            second.join(0.2)

    monkeypatch.setattr(workspace, "copy_tree", slow)
    space.adopt(made[100].parent)
    second.join()
    assert (space.checkpoint / "step-200" / "weights").read_text() == "200"
    assert [path.name for path in space.checkpoint.iterdir()] == ["step-200"]
    assert made[100].is_dir(), "it was moved: its copy had been deleted"


def test_a_full_disk_moves_what_it_cannot_copy(space: Workspace, full: None) -> None:
    source = checkpoint(space.lease("a") / "checkpoint", 100)
    space.adopt(source.parent)
    assert furthest(space.checkpoint, below=space.home) == (100.0, space.checkpoint / "step-100")
    assert (space.checkpoint / "step-100" / "weights").read_text() == "100"


def test_a_checkpoint_that_cannot_be_copied_or_moved_stays_where_it_is(
    space: Workspace, full: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = checkpoint(space.lease("a") / "checkpoint", 100)

    def refuse(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    space.adopt(source.parent)
    assert not space.has(source.parent)
    assert (source / "weights").exists()
    assert space.reached_samples() == 0.0


@pytest.mark.parametrize("broken", [False, True])
def test_a_checkpoint_that_is_replaced_while_it_is_copied(
    space: Workspace, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    folder = space.lease("a") / "checkpoint"
    checkpoint(folder, 100)
    real = copy_tree

    def meanwhile(source: Path, target: Path, **others: Any) -> None:
        if not (folder / "step-200").exists():
            checkpoint(folder, 200)
            (source / "weights").unlink()  # the job deletes its last checkpoint: the copy would lack the weights
            if broken:
                raise shutil.Error("a file went away")
        real(source, target, **others)

    monkeypatch.setattr(workspace, "copy_tree", meanwhile)
    space.adopt(folder)
    assert furthest(space.checkpoint, below=space.home) == (200.0, space.checkpoint / "step-200")
    assert [path.name for path in space.checkpoint.iterdir()] == ["step-200"]
    assert (space.checkpoint / "step-200" / "weights").read_text() == "200"


def test_outputs_are_copied_or_moved(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.txt").write_text("a")
    (tmp_path / "model").write_text("m")
    home = tmp_path / "home"
    for name in ("logs", "model"):
        copy_or_move(tmp_path / name, home / "deep" / name, within=tmp_path)
        copy_or_move(tmp_path / name, home / "deep" / name, within=tmp_path)  # again, over the existing copy
        assert (tmp_path / name).exists()
    assert (home / "deep" / "logs" / "a.txt").read_text() == "a"
    assert (home / "deep" / "model").read_text() == "m"


def test_outputs_are_moved_where_the_disk_is_full(tmp_path: Path, full: None) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.txt").write_text("a")
    (tmp_path / "model").write_text("m")
    (tmp_path / "home" / "logs").mkdir(parents=True)
    (tmp_path / "home" / "logs" / "half").touch()
    for name in ("logs", "model"):
        copy_or_move(tmp_path / name, tmp_path / "home" / name, within=tmp_path)
        assert not (tmp_path / name).exists()
    assert [path.name for path in (tmp_path / "home" / "logs").iterdir()] == ["a.txt"]
    assert (tmp_path / "home" / "model").read_text() == "m"


def test_the_copy_of_the_workdir_excludes_caches_and_environments(tmp_path: Path) -> None:
    source = tmp_path / "code"
    for name in (".git", "pkg", "pkg/__pycache__"):
        (source / name).mkdir(parents=True)
    (source / "train.py").write_text("print()")
    (source / "link").symlink_to("train.py")
    copy_workdir(source, tmp_path / "lease")
    assert sorted(path.name for path in (tmp_path / "lease").iterdir()) == ["link", "pkg", "train.py"]
    assert list((tmp_path / "lease" / "pkg").iterdir()) == []
    assert (tmp_path / "lease" / "link").is_symlink()
    copy_workdir(None, tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []


# ---- what a job may leave there


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def linked(path: Path) -> None:
    (path.parent.parent / "elsewhere.json").write_text('{"samples": 7}')
    path.symlink_to("../elsewhere.json")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


BAD_MARKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "null": (text("null"), "should be a mapping, is null"),
    "list": (text("[100]"), "should be a mapping, is a list"),
    "nan": (text('{"samples": NaN}'), "has NaN in place of a number"),
    "infinity": (text('{"samples": Infinity}'), "has Infinity in place of a number"),
    "digits": (text('{"samples": ' + "9" * 400 + "}"), "an integer of 400 digits"),
    "large": (text('{"samples": 1e300}'), "samples should be between 0 and 1e+18"),
    "negative": (text('{"samples": -5}'), "samples should be between 0 and 1e+18"),
    "string": (text('{"samples": "100"}'), "samples should be a number, is a string"),
    "boolean": (text('{"samples": true}'), "samples should be a number, is true or false"),
    "missing": (text("{}"), "samples is missing"),
    "deep": (text("[" * 10_000), "nested deeper than"),
    "huge": (huge, "is larger than"),
    "fifo": (os.mkfifo, "should be a regular file, is a FIFO"),
    "folder": (Path.mkdir, "should be a regular file, is a folder"),
    "link": (linked, "should be a regular file, is a link"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "should be a regular file, is a link"),
}


@pytest.mark.parametrize("kind", BAD_MARKS)
def test_a_malformed_checkpoint_is_named_and_never_taken(space: Workspace, warned: list[str], kind: str) -> None:
    folder = space.lease("a") / "checkpoint"
    checkpoint(folder, 100)
    mark = checkpoint(folder, 200, mark=False) / "mlcd.json"
    make, problem = BAD_MARKS[kind]
    make(mark)
    (found,) = space.adopt(folder)
    assert found.source == str(mark)
    assert problem in found.problem
    assert f"{mark}: {found.problem}; this checkpoint is not used" in warned
    assert space.reached_samples() == 100.0  # the whole one beside it is taken
    assert not space.has(folder)  # and the malformed one stays for whoever wants to look
    assert space.copy_checkpoint(space.lease("b") / "checkpoint") == 100.0


@pytest.mark.parametrize("kind", BAD_MARKS)
def test_a_run_that_has_taken_a_malformed_checkpoint_continues_without_it(
    space: Workspace, warned: list[str], kind: str
) -> None:
    mark = checkpoint(space.checkpoint, 200, mark=False) / "mlcd.json"
    BAD_MARKS[kind][0](mark)
    assert space.reached_samples() == 0.0
    assert space.copy_checkpoint(space.lease("b") / "checkpoint") == 0.0
    assert any(str(mark) in warning for warning in warned)
    checkpoint(space.lease("b") / "checkpoint", 100)
    assert space.reached_samples() == 100.0
    assert [path.name for path in space.checkpoint.iterdir()] == ["step-100"]


@pytest.mark.parametrize("content", ["", '{"sam', "\xff not text"])
def test_a_half_written_checkpoint_is_skipped_but_no_failure(space: Workspace, warned: list[str], content: str) -> None:
    folder = space.lease("a") / "checkpoint"
    mark = checkpoint(folder, 200, mark=False) / "mlcd.json"
    mark.write_bytes(content.encode("latin-1"))
    assert space.adopt(folder) == ()
    assert len(warned) == 1
    assert str(mark) in warned[0]


@pytest.mark.parametrize("place", ["file", "folder", "checkpoint", "parent", "all", "lease"])
def test_links_in_a_checkpoint_lead_to_nothing_outside(space: Workspace, tmp_path: Path, place: str) -> None:
    secret = tmp_path / "secret"
    checkpoint(secret, 300)
    folder = space.lease("a") / "checkpoint"
    if place in ("file", "folder"):
        path = checkpoint(folder, 200)
        (path / "stolen").symlink_to(secret / "step-300" / "weights" if place == "file" else secret)
    elif place == "checkpoint":
        folder.mkdir(parents=True)
        (folder / "step-300").symlink_to(secret / "step-300")
    elif place == "parent":
        folder.parent.mkdir(parents=True)
        folder.symlink_to(secret)
    elif place == "all":
        folder.parent.parent.parent.mkdir(parents=True)
        (secret / "a").mkdir()
        (secret / "a" / "checkpoint").symlink_to(secret)
        folder.parent.parent.symlink_to(secret)
    else:
        space.checkpoint.parent.mkdir(parents=True)
        space.checkpoint.symlink_to(secret)
        checkpoint(folder, 400)
    space.adopt(folder)
    assert space.reached_samples() == 0.0
    assert space.copy_checkpoint(tmp_path / "next") == 0.0
    assert list((tmp_path / "next").iterdir()) == []
    assert (secret / "step-300" / "weights").read_text() == "300"
    if not space.checkpoint.is_symlink():
        assert not space.checkpoint.exists() or list(space.checkpoint.iterdir()) == []
    assert [path.name for path in secret.glob("step-*")] == ["step-300"]


def test_a_folder_with_very_many_checkpoints_is_not_read(space: Workspace, warned: list[str]) -> None:
    folder = space.lease("a") / "checkpoint"
    for number in range(MOST_CHECKPOINTS + 1):
        (folder / f"step-{number}").mkdir(parents=True)
    (problem,) = space.adopt(folder)
    assert "has more than 1,000 checkpoints" in problem.problem


def test_an_output_is_taken_without_what_its_links_lead_to(tmp_path: Path) -> None:
    workdir, outputs = tmp_path / "workdir", tmp_path / "outputs"
    (workdir / "model").mkdir(parents=True)
    (workdir / "weights").write_text("weights")
    (workdir / "model" / "a").write_text("a")
    (workdir / "model" / "within").symlink_to("a")
    (workdir / "model" / "beside").symlink_to("../weights")
    (workdir / "last").symlink_to("model")
    (tmp_path / "secret").write_text("secret")
    for name in ("model", "last"):
        copy_or_move(workdir / name, outputs / name, within=workdir)
        assert not (outputs / name).is_symlink()
        assert (outputs / name / "within").is_symlink()
        assert (outputs / name / "within").read_text() == "a"
        assert not (outputs / name / "beside").is_symlink()
        assert (outputs / name / "beside").read_text() == "weights"
    for link, to in [("stolen", "../secret"), ("model/stolen", str(tmp_path / "secret")), ("model/up", "..")]:
        (workdir / link).symlink_to(to)
        name = link.split("/")[0]
        shutil.rmtree(outputs, ignore_errors=True)
        with pytest.raises(Malformed, match=r"is a link out of|is not within"):
            copy_or_move(workdir / name, outputs / name, within=workdir)
        assert not (outputs / name).exists()
        (workdir / link).unlink()


@pytest.mark.parametrize("home", ["state", "out/state", "."])
def test_a_home_inside_the_workdir_is_not_copied_into_itself(tmp_path: Path, home: str) -> None:
    source = tmp_path / "job"
    target = source / home / "work" / "run-1" / "leases" / "lease-1" / "workdir"
    target.mkdir(parents=True)
    (source / "out").mkdir(exist_ok=True)
    for name in ("train.py", "out/own.txt"):
        (source / name).write_text("own")
    copy_workdir(source, target)
    copied = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert copied == {"train.py", "out/own.txt"}
    assert not list(target.rglob("leases"))
