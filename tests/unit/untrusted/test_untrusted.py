"""What somebody else wrote is read within limits, or refused with the file's name."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from mlcd.untrusted import Fields, Malformed, Tail, copy_tree, last_lines, parse_json, printable, read_json
from mlcd.untrusted.copying import inside
from mlcd.untrusted.files import LINE_BYTES, READ_BYTES, SMALL_FILE_BYTES


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
