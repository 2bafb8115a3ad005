"""Checkpoints and outputs are fetched completely, also on a full disk and while the job saves."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mlcd.clouds.workspace import Workspace, copy_or_move, copy_workdir, furthest


def checkpoint(folder: Path, samples: int, *, mark: bool = True) -> Path:
    path = folder / f"step-{samples}"
    path.mkdir(parents=True)
    (path / "weights").write_text(str(samples))
    if mark:
        (path / "mlcd.json").write_text(json.dumps({"samples": samples}))
    return path


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, "run-1")


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk without room for a copy."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", refuse)
    monkeypatch.setattr(shutil, "copytree", refuse)


def test_the_furthest_complete_checkpoint_counts(tmp_path: Path) -> None:
    assert furthest(tmp_path) is None
    checkpoint(tmp_path, 90)
    checkpoint(tmp_path, 100)
    checkpoint(tmp_path, 200, mark=False)
    (checkpoint(tmp_path, 300) / "mlcd.json").write_text('{"sam')
    assert furthest(tmp_path) == (100.0, tmp_path / "step-100")


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


def test_a_full_disk_moves_what_it_cannot_copy(space: Workspace, full: None) -> None:
    source = checkpoint(space.lease("a") / "checkpoint", 100)
    space.adopt(source.parent)
    assert furthest(space.checkpoint) == (100.0, space.checkpoint / "step-100")
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
    real = shutil.copytree

    def meanwhile(source: Path, target: Path, **others: Any) -> Path:
        if not (folder / "step-200").exists():
            checkpoint(folder, 200)
            (source / "weights").unlink()  # the job deletes its last checkpoint: the copy would lack the weights
            if broken:
                raise shutil.Error("a file went away")
        return Path(real(source, target, **others))

    monkeypatch.setattr(shutil, "copytree", meanwhile)
    space.adopt(folder)
    assert furthest(space.checkpoint) == (200.0, space.checkpoint / "step-200")
    assert [path.name for path in space.checkpoint.iterdir()] == ["step-200"]
    assert (space.checkpoint / "step-200" / "weights").read_text() == "200"


def test_outputs_are_copied_or_moved(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.txt").write_text("a")
    (tmp_path / "model").write_text("m")
    home = tmp_path / "home"
    for name in ("logs", "model"):
        copy_or_move(tmp_path / name, home / "deep" / name)
        copy_or_move(tmp_path / name, home / "deep" / name)  # again, over the existing copy
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
        copy_or_move(tmp_path / name, tmp_path / "home" / name)
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
