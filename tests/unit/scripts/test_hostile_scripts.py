"""Scripts and folders of strangers: named or skipped, never run, never spoilt, never followed elsewhere."""

import ast
import os
from pathlib import Path

import pytest
import yaml

from mlcd.cli.main import run
from mlcd.errors import BadInput
from mlcd.scripts import find as finding
from mlcd.scripts import find_scripts, read_script

LOOP = "import torch\nfor x in loader:\n    loss.backward()\n    opt.step()\n"
ESCAPES = "\x1b]52;c;AAAA\x07"


def written(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        f"x = {'-' * 100_000}1\n",
        f"x = {'lambda:' * 50_000}1\n",
        f"x = {'not ' * 50_000}1\n",
        "if a: pass\n" + "elif a: pass\n" * 30_000,
        f"x = {'1+' * 100_000}1\n",
        f"x = {'[' * 1_000}\n",
        "x = 1\0\n",
    ],
)
def test_a_script_that_no_parser_takes_is_named_and_skipped(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text + LOOP)
    with pytest.raises(BadInput, match=r"train\.py(:\d+:)? is not"):
        read_script(path)
    assert find_scripts(tmp_path) == ()


def test_numbers_and_names_that_no_job_file_can_hold_are_left_out(tmp_path: Path) -> None:
    saves = "".join(f"torch.save(m, {name})\n" for name in (r"'a\nb: 1'", r"'\ud800'", r"'\x1b[31m'", "'model.pt'"))
    huge = f"B = 0x{'f' * 5_000}\nimport torch\nfor x in DataLoader(d, batch_size=B):\n    loss.backward()\n"
    found = read_script(written(tmp_path, huge + saves))
    assert (found.batch, found.outputs) == (None, ("model.pt",))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("odd", ["\x0c", "# \u2028 \x85 \x1c", "s = 'a\u2028b\x0bc'"])
def test_an_edit_changes_only_the_lines_it_names(tmp_path: Path, odd: str, end: str) -> None:
    """Python's lines end with \\n, \\r or both; `str.splitlines` also ends them at form feeds and other characters."""
    lines = ["import torch", odd, "# page two", "for x in loader:", "    loss.backward()", "    opt.step()"]
    found = read_script(written(tmp_path, end.join(lines)))
    assert found.edited.split(end) == [
        "import torch", "import mlcd", odd, "# page two", "for x in mlcd.steps(loader):", *lines[4:], "",
    ]  # fmt: skip
    ast.parse(found.edited)


def test_a_folder_that_is_too_large_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        (tmp_path / f"f{number}").mkdir()
        written(tmp_path / f"f{number}", LOOP)
    assert len(find_scripts(tmp_path)) == 6
    monkeypatch.setattr(finding, "MOST_FOLDERS", 3)
    assert len(find_scripts(tmp_path)) == 2
    monkeypatch.setattr(finding, "MOST_FOLDERS", 1_000)
    monkeypatch.setattr(finding, "MOST_TOTAL_BYTES", 2 * len(LOOP))
    assert len(find_scripts(tmp_path)) == 2


def test_what_is_no_file_is_not_opened(here: Path) -> None:
    os.mkfifo(here / "train.py")
    (here / "main.py").symlink_to("/dev/zero")
    (here / "run.py").mkdir()
    assert find_scripts(here) == ()
    for name in ("train.py", "main.py", "run.py"):
        with pytest.raises(BadInput, match=name):
            read_script(here / name)


def test_names_are_words_of_the_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, command in {
        "-c.py": "python ./-c.py",
        "tr ain;touch pwned.py": "python 'tr ain;touch pwned.py'",
        "it's.py": """python 'it'"'"'s.py'""",
        "train.py": "python train.py",
    }.items():
        written(here, LOOP, name)
        assert run(["init", "-t", "pytorch", "--force", "--script", f"./{name}"]) == 0
        assert yaml.safe_load((here / "job.yaml").read_text())["run"] == command
    capsys.readouterr()


@pytest.mark.parametrize("name", ["train\nrun: touch pwned\n.py", f"{ESCAPES}.py", "a #b.py", "a: b.py"])
def test_a_name_that_a_job_file_cannot_hold_is_refused(
    here: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(here, LOOP, name)
    assert run(["init", "-t", "pytorch"]) == 2
    said = capsys.readouterr()
    assert "rename it" in said.err
    assert "\x1b" not in said.err + said.out
    assert not (here / "job.yaml").exists()


def test_a_diff_has_nothing_that_a_terminal_obeys(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(here, f"import torch\n# {ESCAPES}\nfor x in loader:\n    loss.backward()\n    opt.step()\n")
    assert run(["init", "-t", "pytorch"]) == 0
    said = capsys.readouterr()
    assert "mlcd.steps(loader)" in said.out
    assert "\x1b" not in said.err + said.out
    assert "\x07" not in said.err + said.out


def test_nothing_is_written_through_a_link_or_over_an_older_copy(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(here, LOOP)
    (here / "job.yaml").symlink_to("elsewhere")
    assert run(["init", "-t", "pytorch"]) == 2
    assert "job.yaml is a link that leads nowhere" in capsys.readouterr().err
    (here / "job.yaml").unlink()
    for orig in ("link", "file"):
        if orig == "link":
            (here / "train.py.orig").symlink_to("elsewhere")
        else:
            (here / "train.py.orig").unlink()
            written(here, "mine", "train.py.orig")
        assert run(["init", "-t", "pytorch", "--edit"]) == 2
        assert "train.py.orig already exists" in capsys.readouterr().err
    assert (here / "train.py.orig").read_text() == "mine"
    assert (here / "train.py").read_text() == LOOP
    assert not (here / "job.yaml").exists()
    assert not (here / "elsewhere").exists()
