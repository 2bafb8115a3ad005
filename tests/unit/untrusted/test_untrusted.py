"""What somebody else wrote is read within limits, or refused with the file's name."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mlcd.untrusted.copying
from mlcd.untrusted import (
    Fields,
    Malformed,
    NotJson,
    Tail,
    copy_tree,
    delete_tree,
    inside,
    last_line,
    last_lines,
    parse_json,
    printable,
    read_json,
)
from mlcd.untrusted.copying import MOST_FOLDERS_DEEP
from mlcd.untrusted.files import LINE_BYTES, MOST_BEHIND_BYTES, READ_BYTES, SMALL_FILE_BYTES


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"NaN", "NaN in place of a number"),
        (b"[-Infinity]", "-Infinity in place of a number"),
        (b"1" * 400, "an integer of 400 digits"),
        (b"1e999", "too large: 1e999"),
        (b"[" * 33 + b"]" * 33, "deeper than 32 levels"),
        (b'{"a":' * 100_000, "deeper than 32 levels"),
        (b'"\\ud800"', "is not UTF-8"),
        (b'{"a": 1, "a": 2}', "a key twice"),
    ],
)
def test_json_beyond_the_limits_is_refused(text: bytes, problem: str) -> None:
    with pytest.raises(Malformed, match=problem) as refused:
        parse_json(text, "exit.json")
    assert str(refused.value).startswith("exit.json: ")


def test_a_text_that_is_no_json_is_told_from_json_that_is_wrong() -> None:
    for text in (b"", b'{"a": 1', b"\xff", b"garbage"):
        with pytest.raises(NotJson):
            parse_json(text)
    with pytest.raises(Malformed) as refused:
        parse_json("NaN")
    assert not isinstance(refused.value, NotJson)
    assert parse_json('[NaN, -Infinity, 1e999, 1.5, "NaN"]', non_finite_as_null=True) == [None, None, None, 1.5, "NaN"]


def test_many_escaped_quotes_take_linear_time() -> None:
    """They took 26 s; whoever makes that quadratic again waits for minutes."""
    for text in ('"' + '\\"' * 500_000, '"\\' * 500_000):
        with pytest.raises(NotJson):
            parse_json(text)


def test_brackets_in_strings_are_no_nesting() -> None:
    value = {"text": '[[["\\' * 50, "list": [[1, 2.5, None, True]]}
    assert parse_json(json.dumps(value)) == value


def test_fields_are_checked_values() -> None:
    fields = Fields(
        parse_json('{"n": 3, "x": 1.5, "t": "a", "no": null, "b": true, "l": [1], "m": {"n": -1}}'), "f.json"
    )
    assert (fields.whole("n"), fields.number("x"), fields.text("t"), fields.items("l")) == (3, 1.5, "a", [1])
    assert "no" not in fields
    assert "n" in fields
    refused_reads: list[tuple[Callable[[], object], str]] = [
        (lambda: fields.number("gone"), "f.json: gone is missing"),
        (lambda: fields.number("t"), "f.json: t should be a number, is a string"),
        (lambda: fields.number("b"), "b should be a number, is true or false"),
        (lambda: fields.number("x", least=2), "x should be at least 2, is 1.5"),
        (lambda: fields.whole("x"), "x should be an integer"),
        (lambda: fields.whole("n", least=4, most=5), "n should be between 4 and 5"),
        (lambda: fields.text("no"), "no should be a string, is null"),
        (lambda: fields.text("t", most_characters=0), "t has 1 characters"),
        (lambda: fields.items("l", most=0), "l has 1 items"),
        (lambda: fields.fields("m").number("n", least=0), "f.json: m: n should be at least 0"),
        (lambda: Fields([1], "f.json"), "f.json: should be a mapping, is a list"),
    ]
    for read, problem in refused_reads:
        with pytest.raises(Malformed) as refused:
            read()
        assert problem in str(refused.value)
    with pytest.raises(Malformed, match="too large"):
        Fields({"n": 10**400}).number("n")
    with pytest.raises(Malformed, match="finite"):
        Fields({"n": float("nan")}).number("n")


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/etc/passwd")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "socket"))
    for name, kind in [("fifo", "a FIFO"), ("folder", "a folder"), ("link", "a link"), ("socket", "a socket")]:
        with pytest.raises(Malformed, match=f"{name}: should be a regular file, is {kind}"):
            read_json(tmp_path / name)
        assert last_lines(tmp_path / name) == []
    with pytest.raises(Malformed, match="is a device"):
        read_json(Path("/dev/zero"))
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "gone")
    (tmp_path / "file").write_text("{}")
    with pytest.raises(Malformed, match="should be a folder and is not"):
        read_json(tmp_path / "file" / "exit.json")


def test_a_huge_file_is_refused_and_a_sparse_one_costs_nothing(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(Malformed, match=f"larger than {SMALL_FILE_BYTES:,} bytes"):
        read_json(tmp_path / "huge")
    assert len("".join(last_lines(tmp_path / "huge"))) == 20_000


def test_a_tail_reads_on_where_it_ended(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "log")
    assert tail.lines() == []
    with (tmp_path / "log").open("w") as file:
        file.write("one\ntwo\rthr")
    assert tail.lines() == ["one", "two"]
    with (tmp_path / "log").open("a") as file:
        file.write("ee\n")
    assert tail.lines() == ["three"]
    assert not tail.behind


def test_a_tail_is_bounded_and_loses_no_line(tmp_path: Path) -> None:
    lines = [f"{number} {'x' * 90}" for number in range(100_000)]
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    tail, reads = Tail(tmp_path / "log"), 0
    found: list[str] = []
    while not reads or tail.behind:
        new = tail.lines()
        assert sum(map(len, new)) <= READ_BYTES
        found, reads = found + new, reads + 1
    assert found == lines
    assert reads > 1


def test_an_endless_line_is_cut_once(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"y" * (2 * READ_BYTES + 10) + b"\nnext\n")
    tail = Tail(tmp_path / "log")
    found: list[str] = []
    for _ in range(4):
        found += tail.lines()
    assert found == ["y" * LINE_BYTES, "next"]


def test_a_tail_far_behind_skips_to_the_end(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        file.write(b"first\n")
        file.truncate(10 * MOST_BEHIND_BYTES)  # a hole: one line of zeros, as long as a log that nobody could read
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast\n")
    tail = Tail(tmp_path / "log")
    assert tail.lines() == ["last"]
    assert not tail.behind


def test_a_file_of_which_it_is_known_may_begin_again(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntwo\n")
    tail = Tail(tmp_path / "log", may_start_again=True)
    assert tail.lines() == ["one", "two"]
    (tmp_path / "log").write_text("new\n")
    assert tail.lines() == ["new"]


def test_no_link_on_the_way_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real" / "node-0").mkdir(parents=True)
    (tmp_path / "real" / "node-0" / "exit.json").write_text("{}")
    (tmp_path / "home").symlink_to("real")  # ours, or somebody's above us
    assert read_json(tmp_path / "home" / "node-0" / "exit.json", below=tmp_path / "home") == {}
    (tmp_path / "real" / "node-1").symlink_to("node-0")
    for read in (read_json, lambda path, below: Tail(path, below=below).lines()):
        with pytest.raises(Malformed, match=r"node-1/exit.json: is reached through a link"):
            read(tmp_path / "home" / "node-1" / "exit.json", below=tmp_path / "home")


def test_the_last_line_of_a_log(tmp_path: Path) -> None:
    assert last_line(tmp_path / "log") == ""
    (tmp_path / "log").write_bytes(b"\xff" * 100_000 + b"\none\n  \x1b[31mtwo \n\n")
    assert last_line(tmp_path / "log") == "\ufffd[31mtwo"
    (tmp_path / "log").write_bytes(b"x" * 10**6)
    assert last_line(tmp_path / "log") == "x" * 300 + "…"


def test_a_file_that_shrinks_is_malformed(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntwo\n")
    tail = Tail(tmp_path / "log")
    tail.lines()
    (tmp_path / "log").write_text("one\n")
    with pytest.raises(Malformed, match="log: became shorter"):
        tail.lines()


def test_copies_keep_links_within_and_refuse_links_out(tmp_path: Path) -> None:
    source, secret = tmp_path / "source", tmp_path / "secret"
    (source / "a").mkdir(parents=True)
    (source / "a" / "file").write_text("content")
    (source / "link").symlink_to("a/file")
    secret.write_text("private")
    copy_tree(source, tmp_path / "copy")
    assert (tmp_path / "copy" / "link").is_symlink()
    assert (tmp_path / "copy" / "link").read_text() == "content"
    for place, to in [("out", secret), ("a/out", Path("../../secret")), ("dir", tmp_path)]:
        (source / place).symlink_to(to)
        with pytest.raises(Malformed, match="is a link out of"):
            copy_tree(source, tmp_path / "stolen")
        assert not (tmp_path / "stolen").exists()
        (source / place).unlink()
    (source / "absolute").symlink_to(source / "a" / "file")  # within now, and somewhere else once copied
    with pytest.raises(Malformed, match="is a link out of"):
        copy_tree(source, tmp_path / "stolen")
    (source / "absolute").unlink()
    os.mkfifo(source / "pipe")
    with pytest.raises(Malformed, match="neither a file nor a folder"):
        copy_tree(source, tmp_path / "stolen")
    copy_tree(source, tmp_path / "without", ignore=lambda _folder, _names: {"pipe"})
    assert sorted(path.name for path in (tmp_path / "without").iterdir()) == ["a", "link"]


def test_a_link_that_leads_in_circles_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").symlink_to("b")
    (tmp_path / "source" / "b").symlink_to("a")
    copy_tree(tmp_path / "source", tmp_path / "copy")  # they lead nowhere there too
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(Malformed, match="is a link out of"):
        copy_tree(tmp_path / "loop", tmp_path / "stolen", within=tmp_path)


def test_a_link_by_way_of_a_link_is_followed_in_thought(tmp_path: Path) -> None:
    """Each looks as if it stayed within; together they lead out."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "here").symlink_to(".")
    (tmp_path / "source" / "up").symlink_to("here/..")
    with pytest.raises(Malformed, match=r"up: is a link out of"):
        copy_tree(tmp_path / "source", tmp_path / "stolen")


def test_a_folder_that_changes_while_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, secret = tmp_path / "source", tmp_path / "secret"
    source.mkdir()
    secret.write_text("private")
    (source / "file").write_text("content")
    checked = mlcd.untrusted.copying.check_tree

    def swap(path: Path, **others: Any) -> None:
        checked(path, **others)
        if path == source:
            (source / "file").unlink()
            (source / "file").symlink_to(secret)

    monkeypatch.setattr(mlcd.untrusted.copying, "check_tree", swap)
    with pytest.raises((Malformed, OSError)):
        copy_tree(source, tmp_path / "stolen")
    assert not (tmp_path / "stolen" / "file").exists()


def test_holes_are_copied_as_holes(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(2**40)
        file.write(b"end")
    copy_tree(tmp_path / "sparse", tmp_path / "copy")
    found = (tmp_path / "copy").stat()
    assert found.st_size == 2**40 + 3
    assert found.st_blocks * 512 < 2**20
    with (tmp_path / "copy").open("rb") as file:
        assert file.read(6) == b"begin\0"
        file.seek(2**40)
        assert file.read() == b"end"


def make_deep(folder: Path, levels: int, name: str) -> None:
    folder.mkdir()
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        for _ in range(levels):
            Path(name).mkdir()
            os.chdir(name)
        Path("file").write_text("at the bottom")
    finally:
        os.fchdir(here)
        os.close(here)


@pytest.mark.parametrize(
    ("levels", "name"),
    [
        pytest.param(1100, "d", marks=pytest.mark.extra),  # deeper than Python may recurse
        (MOST_FOLDERS_DEEP + 1, "d"),
        (40, "d" * 200),  # a path longer than a system call takes
    ],
)
def test_no_depth_is_too_deep_to_delete_and_none_is_copied(tmp_path: Path, levels: int, name: str) -> None:
    make_deep(tmp_path / "source", levels, name)
    with pytest.raises((Malformed, OSError), match=r"levels deep|File name too long"):
        copy_tree(tmp_path / "source", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    delete_tree(tmp_path / "source", below=tmp_path)
    assert not (tmp_path / "source").exists()


def test_what_links_lead_to_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "kept" / "inner").mkdir(parents=True)
    (tmp_path / "kept" / "inner" / "file").write_text("kept")
    (tmp_path / "home" / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "home" / "tree" / "a" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "home" / "tree" / "link").symlink_to(tmp_path / "kept" / "inner" / "file")
    (tmp_path / "home" / "tree" / "a" / "b").chmod(0)
    os.mkfifo(tmp_path / "home" / "tree" / "fifo")
    (tmp_path / "home" / "way").symlink_to(tmp_path / "kept")
    delete_tree(tmp_path / "home" / "way" / "inner", below=tmp_path / "home")  # reached through a link: not ours
    assert (tmp_path / "kept" / "inner" / "file").exists()
    for name in ("way", "tree", "gone"):
        delete_tree(tmp_path / "home" / name, below=tmp_path / "home")
    assert list((tmp_path / "home").iterdir()) == []
    assert (tmp_path / "kept" / "inner" / "file").read_text() == "kept"


def test_a_single_file_is_copied_unless_it_is_a_link_out(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "model").write_text("weights")
    copy_tree(tmp_path / "work" / "model", tmp_path / "new" / "model")
    assert (tmp_path / "new" / "model").read_text() == "weights"
    (tmp_path / "work" / "stolen").symlink_to("../secret")
    with pytest.raises(Malformed, match="is a link out of"):
        copy_tree(tmp_path / "work" / "stolen", tmp_path / "new" / "stolen")


def test_a_name_stays_inside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "up").symlink_to("..")
    assert inside(tmp_path / "work", "model.pt") == tmp_path / "work" / "model.pt"
    for name in ("../secret", "/etc/passwd", "up/secret"):
        with pytest.raises(Malformed, match="is not within"):
            inside(tmp_path / "work", name)


def test_texts_cannot_command_a_terminal() -> None:
    assert printable("loss 0.1\n\tok é 漢") == "loss 0.1\n\tok é 漢"
    assert printable("\x1b]0;title\x07\x9b2J\u202e\u2028") == "�]0;title��2J��"
    assert printable("x" * 3000) == "x" * 2000 + "…"


def test_a_copy_that_is_cut_off_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new").mkdir()
    for name in ("a", "b"):
        (tmp_path / "new" / name).write_text("new")
    copy_tree(tmp_path / "new", tmp_path / "copy")
    for name in ("a", "b"):
        (tmp_path / "copy" / name).write_text("old")
    written: list[int] = []

    def killed(read: int, copy: int, size: int) -> None:
        written.append(os.write(copy, b"n"))
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(mlcd.untrusted.copying, "_copy_data", killed)
        with pytest.raises(KeyboardInterrupt):
            copy_tree(tmp_path / "new", tmp_path / "copy")
    assert written == [1]
    assert {file.name: file.read_text() for file in (tmp_path / "copy").iterdir()} == {"a": "old", "b": "old"}
    (tmp_path / "copy" / mlcd.untrusted.copying.PART).write_text("half")
    copy_tree(tmp_path / "new", tmp_path / "copy")
    assert {file.name: file.read_text() for file in (tmp_path / "copy").iterdir()} == {"a": "new", "b": "new"}
