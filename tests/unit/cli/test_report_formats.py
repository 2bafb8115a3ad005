"""`mlcd report --format`: pictures as files that a decoder opens, and what does not go together."""

import json
import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from tests.report_samples import hostile_run

from mlcd import extras
from mlcd.cli.main import cli
from mlcd.errors import BadInput, MissingExtra
from mlcd.findings import shown
from mlcd.kinds import kind_of
from mlcd.report import raster
from mlcd.report.palette import THEMES
from mlcd.report.pictures import pictures_of

JOB = """
name: small
resources: {infra: sim/aws, instance_type: [c5.xlarge, g4dn.xlarge]}
num_nodes: 1..3
job: {model: alexnet, samples: 50000, epochs: 1}
goal: {minimize: time, budget: 20 USD}
search: {strategy: random, max_trials: 2}
"""


def mlcd(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), catch_exceptions=False, standalone_mode=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a finished run in its home."""
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(JOB, encoding="utf-8")
    assert mlcd("train", "job.yaml").exception is None
    return tmp_path


def decoded(data: bytes) -> tuple[int, int]:
    """(width, height) of a PNG; checks every CRC, and that all pixels are there."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, width, height, channels = 8, b"", 0, 0, 0
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + body),)
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert depth == 8
            channels = {2: 3, 6: 4}[colour]
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    assert len(zlib.decompress(packed)) == height * (1 + width * channels)
    return width, height


def test_svg_writes_every_picture_into_a_folder(folder: Path) -> None:
    result = mlcd("report", "--format", "svg", "--out", "shown")
    assert result.exception is None
    names = {file.name for file in (folder / "shown").iterdir()}
    assert names == {"speed.svg", "map.svg", "tradeoff.svg", "money.svg", "timeline.svg"}
    for name in names:
        text = (folder / "shown" / name).read_text(encoding="utf-8")
        ET.fromstring(text)
        assert "prefers-color-scheme:dark" in text
    assert result.output.count("Wrote ") == 5


def test_a_theme_fixes_the_colours(folder: Path) -> None:
    assert mlcd("report", "--picture", "map", "--theme", "dark", "--out", "map.svg").exception is None
    text = (folder / "map.svg").read_text(encoding="utf-8")
    assert THEMES["dark"]["paper"] in text
    assert "var(" not in text


@pytest.mark.parametrize("theme", THEMES)
def test_png_is_opened_by_a_decoder_and_has_its_size_and_texts(folder: Path, theme: str) -> None:
    pytest.importorskip("resvg_py", reason="the extra [png] is not installed: scripts/setup-venv test")
    assert mlcd("report", "--format", "png", "--theme", theme, "--out", "shown").exception is None
    files = sorted((folder / "shown").iterdir())
    assert [file.name for file in files] == ["map.png", "money.png", "speed.png", "timeline.png", "tradeoff.png"]
    for file in files:
        width, height = decoded(file.read_bytes())
        assert width == 2 * 860
        assert height > 100
    assert mlcd("report", "--format", "png", "--picture", "speed").exception is None
    (one,) = folder.glob("small-*-speed.png")
    assert decoded(one.read_bytes())[0] == 2 * 860


def test_json_has_the_tables_and_the_decisions(folder: Path) -> None:
    assert mlcd("report", "--format", "json", "--out", "all.json").exception is None
    written = json.loads((folder / "all.json").read_text(encoding="utf-8"))
    assert [each["name"] for each in written["pictures"]] == ["speed", "map", "tradeoff", "money", "timeline"]
    for each in written["pictures"]:
        assert all(len(row) == len(each["columns"]) for row in each["rows"])
    assert [line["what"] for line in written["decisions"]][-3:] == ["ended", "chosen", "trained"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "html", "--picture", "map"), "--picture: --format html has all pictures"),
        (("--theme", "dark"), "--theme: --format html follows its reader"),
        (("--picture", "map", "--out", "a.png"), "allowed: a name that ends in .svg, or --format png"),
        (("--format", "svg", "--out", "job.yaml"), "--out: the folder job.yaml cannot be made"),
    ],
)
def test_what_does_not_go_together_is_refused(folder: Path, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        mlcd("report", *words)


def test_without_the_extra_png_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"png"):
        mlcd("report", "--format", "png")


def test_without_a_font_png_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resvg_py", reason="the extra [png] is not installed: scripts/setup-venv test")
    assert raster._family() in raster.FAMILIES
    monkeypatch.setattr(raster, "_family", lambda: "")
    with pytest.raises(BadInput, match="no font for texts"):
        mlcd("report", "--format", "png")


def test_hostile_names_stay_texts_in_every_format() -> None:
    run = shown(hostile_run())
    fragment = kind_of(run.kind).fragment(run)
    assert fragment.startswith("<style>")
    assert "<script" not in fragment
    assert "<html" not in fragment
    for picture in pictures_of(run):
        for theme in THEMES:
            root = ET.fromstring(picture.in_theme(theme))
            assert not {element.tag.rpartition("}")[2] for element in root.iter()} & {"script", "image", "a", "use"}
            assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
