"""`mlcd catalog refresh` against a real HTTP server: what is good is kept, and whatever else comes changes nothing."""

import contextlib
import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import mlcd
from mlcd.catalog import Instance, load_catalog
from mlcd.catalog import fetch as fetching
from mlcd.catalog.fetch import fetch
from mlcd.catalog.refresh import FILE, REGIONS, refresh, refreshed_prices, save
from mlcd.cli.main import run as main
from mlcd.errors import CatalogError

TODAY = date(2026, 11, 16)
USED = dict.fromkeys(REGIONS, date(2026, 8, 1))
HEADER = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone"
KNOWN = load_catalog(refreshed=False).instances


def table(cloud: str, *, factor: float = 1.25, change: Callable[[str, str], str] = lambda _, text: text) -> str:
    """A table as SkyPilot writes it, at the snapshot's prices times a factor, in two zones; `change` damages prices."""
    lines = [HEADER]
    for i in (i for i in KNOWN if i.cloud == cloud and not (cloud == "gcp" and i.accelerators)):
        for zone, spot in (("a", 0.3), ("b", 0.5)):
            price = i.usd_per_hour.dollars * factor
            cells = change(i.name, f"{price:.6f},{price * spot:.6f}")
            lines.append(f"{i.name},,,{i.vcpus},{i.memory_gib},,{cells},{REGIONS[cloud]},{REGIONS[cloud]}{zone}")
        lines.append(f"{i.name},,,{i.vcpus},{i.memory_gib},,999,999,elsewhere-1,elsewhere-1a")
    return "\n".join(lines) + "\n"


class Pages(BaseHTTPRequestHandler):
    """Answers as the test says: by path, a function of this handler."""

    answers: dict[str, Callable[["Pages"], None]]

    def do_GET(self) -> None:
        answer: Callable[[Pages], None] = self.answers.get(self.path, lambda page: page.send_error(404))
        answer(self)

    def log_message(self, *_: object) -> None:
        pass

    def give(self, body: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


class Server:
    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.address = f"http://127.0.0.1:{server.server_address[1]}"
        self.answers: dict[str, Callable[[Pages], None]] = {}

    def has(self, cloud: str, answer: Callable[[Pages], None]) -> str:
        self.answers[f"/{cloud}/vms.csv"] = answer
        return f"{self.address}/{cloud}/vms.csv"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLCD_CATALOG", raising=False)
    handler = type("Handler", (Pages,), {})
    running = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    found = Server(running)
    handler.answers = found.answers  # type: ignore[attr-defined]
    threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
    yield found
    running.shutdown()
    running.server_close()


def plain(text: str, **headers: str) -> Callable[[Pages], None]:
    return lambda page: page.give(text.encode(), None, **headers)


def price(name: str, cloud: str = "aws") -> float:
    return load_catalog().for_cloud(cloud)[name].usd_per_hour.dollars


def old(name: str, cloud: str = "aws") -> Instance:
    return next(i for i in KNOWN if (i.cloud, i.name) == (cloud, name))


def test_good_tables_are_used_with_their_date_and_source(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    day = datetime.now(UTC) - timedelta(days=3)
    for cloud in REGIONS:
        server.has(cloud, plain(table(cloud), Last_Modified=format_datetime(day, usegmt=True)))
    assert main(["catalog", "refresh", "--from", server.address]) == 0
    assert price("c5.xlarge") == pytest.approx(old("c5.xlarge").usd_per_hour.dollars * 1.25)
    assert price("Standard_D4s_v5", "azure") == pytest.approx(
        old("Standard_D4s_v5", "azure").usd_per_hour.dollars * 1.25
    )
    spot = load_catalog().for_cloud("aws")["c5.xlarge"].spot_usd_per_hour
    assert spot is not None
    assert spot.dollars == pytest.approx(price("c5.xlarge") * 0.4), "the median zone's"
    assert price("g2-standard-4", "gcp") == old("g2-standard-4", "gcp").usd_per_hour.dollars, "priced apart there"
    assert load_catalog().date == day.date()
    assert load_catalog(refreshed=False).date == date(2026, 8, 1)
    out = capsys.readouterr().out
    assert f"prices of {day.date()} from {server.address}/aws/vms.csv" in out
    assert main(["catalog", "c5.xlarge"]) == 0
    assert f"as of {day.date()} (3 days old)" in capsys.readouterr().out
    assert main(["catalog", "refresh", "--from", "snapshot"]) == 0
    assert price("c5.xlarge") == old("c5.xlarge").usd_per_hour.dollars


def test_the_price_that_a_trial_was_paid_at_is_stored_with_it(server: Server, tmp_path: Path) -> None:
    save(refresh(server.has("aws", plain(table("aws"))), KNOWN, used=USED, today=TODAY))
    job = {
        "name": "a",
        "resources": {"infra": "sim/aws", "instance_type": "c5.xlarge"},
        "num_nodes": 2,
        "job": {"model": "resnet152", "samples": 5000, "epochs": 1},
        "goal": {"minimize": "time"},
    }
    result = mlcd.train(job)
    (tmp_path / "home" / FILE).unlink()
    again = mlcd.load(result.run_id)
    assert isinstance(again, mlcd.Result)
    assert again.trials[0].price.dollars == pytest.approx(2 * old("c5.xlarge").usd_per_hour.dollars * 1.25)
    assert again.record.catalog_date == "2026-08-01", "the oldest of all clouds: two were not refreshed"


def test_the_second_place_is_tried_where_the_first_has_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for cloud in REGIONS:
        server.answers[f"/mirror/{cloud}/vms.csv"] = plain(table(cloud))
    monkeypatch.setattr("mlcd.catalog.refresh.HOSTED", (f"{server.address}/gone", f"{server.address}/mirror"))
    found = refresh(None, KNOWN, used=USED, today=TODAY)
    assert {cloud for cloud, _ in found.prices} == set(REGIONS)


def test_a_folder_on_disk_is_a_source_too(server: Server, tmp_path: Path) -> None:
    for cloud in REGIONS:
        (tmp_path / "tables" / cloud).mkdir(parents=True)
        (tmp_path / "tables" / cloud / "vms.csv").write_text(table(cloud))
    today = datetime.now(UTC).date()
    found = refresh(str(tmp_path / "tables"), KNOWN, used=USED, today=today)
    assert {table.date for table in found.tables.values()} == {today}
    alone = refresh(str(tmp_path / "tables" / "gcp" / "vms.csv"), KNOWN, used=USED, today=today)
    assert {cloud for cloud, _ in alone.prices} == {"gcp"}


def redirect(to: str) -> Callable[[Pages], None]:
    def answer(page: Pages) -> None:
        page.send_response(302)
        page.send_header("Location", to)
        page.send_header("Content-Length", "0")
        page.end_headers()

    return answer


def endless(page: Pages) -> None:
    page.send_response(200)
    page.end_headers()
    try:
        page.wfile.write(f"{HEADER}\n".encode())
        while True:
            page.wfile.write(b"x" * 2**16)
    except OSError:
        pass


def dripping(page: Pages) -> None:
    page.send_response(200)
    page.end_headers()
    try:
        while True:
            page.wfile.write(b"x")
            page.wfile.flush()
            time.sleep(0.02)
    except OSError:
        pass


def only(name: str, cells: str) -> Callable[[str, str], str]:
    return lambda found, text: cells if found == name else text


AWS = table("aws")
BAD: dict[str, tuple[Callable[[Pages], None], str]] = {
    "stale": (plain(AWS, Last_Modified="Fri, 31 Jul 2026 00:00:00 GMT"), "older than those in use (2026-08-01)"),
    "of the future": (plain(AWS, Last_Modified="Fri, 31 Jul 2027 00:00:00 GMT"), "in the future"),
    "cut off on the way": (lambda page: page.give(AWS[:5000].encode(), length=len(AWS)), "cut off after 5,000"),
    "cut off in a line": (plain(AWS[:5003]), "is it cut off?"),
    "cut off after a line": (plain("\n".join(AWS.splitlines()[:40]) + "\n"), "it is cut off, or another table"),
    "empty": (plain(""), "its first line lacks InstanceType, Price, SpotPrice, Region"),
    "a line without end": (plain(HEADER + "," * 30_000), "it has a line of over 20,000 characters"),
    "a web page": (plain("<!doctype html><p>Sign in"), "is no table of prices"),
    "another region": (plain(AWS.replace("us-east-1", "eu-west-1")), "has only 0 of"),
    "not text": (lambda page: page.give(b"\xff\xfe\x00PK"), "not a text file in UTF-8"),
    "torn quotes": (plain(AWS.replace("c5.large,", '"c5.large,', 1)), "not CSV|is it cut off"),
    "nan": (plain(table("aws", change=only("c5.large", "nan,nan"))), "Price is no price (got 'nan')"),
    "negative": (plain(table("aws", change=only("c5.large", "-1,0.1"))), "Price is no price (got '-1')"),
    "negative spot": (plain(table("aws", change=only("c5.large", "0.1,-0.1"))), "SpotPrice is no price"),
    "infinite": (plain(table("aws", change=only("c5.large", "inf,0.1"))), "Price is no price (got 'inf')"),
    "words": (plain(table("aws", change=only("c5.large", "free,0.1"))), "Price is no price (got 'free')"),
    "a hundred times": (plain(table("aws", factor=100)), "prices are not plausible"),
    "a hundredth": (plain(table("aws", factor=0.01)), "prices are not plausible"),
    "a zip bomb": (
        lambda page: page.give(gzip.compress(b"0" * 2**24), Content_Encoding="gzip"),
        "comes compressed (gzip)",
    ),
    "to a file": (redirect("file:///etc/passwd"), "is not an http or https address"),
    "to ftp": (redirect("ftp://127.0.0.1/aws/vms.csv"), "is not an http or https address"),
    "in a circle": (redirect("/aws/vms.csv"), "infinite loop"),
    "nothing there": (lambda page: page.send_error(404), "the server answers 404"),
    "server error": (lambda page: page.send_error(500), "the server answers 500"),
    "hangs up": (lambda page: page.connection.close(), "cannot be fetched"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_bad_is_refused_and_changes_nothing(
    server: Server, name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answer, says = BAD[name]
    place = server.has("aws", answer)
    assert main(["catalog", "refresh", "--from", place]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"mlcd: {place}")
    assert any(part in said for part in says.split("|")), said
    assert "Traceback" not in said
    assert not (tmp_path / "home" / FILE).exists()
    assert load_catalog().date == date(2026, 8, 1)


def forever(start: bytes, more: bytes) -> Callable[[Pages], None]:
    def answer(page: Pages) -> None:
        with contextlib.suppress(OSError):
            page.wfile.write(start)
            while True:
                page.wfile.write(more)
                page.wfile.flush()
                time.sleep(0.02)

    return answer


ENDLESS = (
    dripping,
    forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    forever(b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    forever(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a"),
    forever(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", b"X: y\r\n"),
)


@pytest.mark.parametrize(
    ("answer", "says"), [(endless, "is larger than 1 MiB"), *((e, "took longer") for e in ENDLESS)]
)
def test_what_does_not_end_is_ended(
    server: Server, answer: Callable[[Pages], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "GRACE_SECONDS", 0.2)
    with pytest.raises(CatalogError, match=says):
        fetch(server.has("aws", answer), most_bytes=2**20, seconds=60.0 if answer is endless else 0.3)


@pytest.mark.parametrize("zone", ["+999999999999999999999", "+2359999", "x"])
def test_a_date_that_cannot_be_is_none(server: Server, zone: str) -> None:
    modified = f"Mon, 02 Nov 2026 00:00:00 {zone}"
    found = fetch(server.has("aws", plain("x", Last_Modified=modified)))
    assert found.modified in (None, date(2026, 11, 2))


def test_a_single_odd_price_keeps_the_old_one_and_is_told(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    odd = table("aws", change=only("c5.large", "40,12"))
    assert main(["catalog", "refresh", "--from", server.has("aws", plain(odd))]) == 0
    assert "kept at its old price: aws c5.large: $40 an hour" in capsys.readouterr().out
    assert price("c5.large") == old("c5.large").usd_per_hour.dollars
    assert price("c5.xlarge") != old("c5.xlarge").usd_per_hour.dollars
    assert any("c5.large" in note for note in load_catalog().notes)


@pytest.mark.parametrize("source", ["file:///etc/passwd", "ftp://host/x", "gopher://host/x"])
def test_other_protocols_are_refused(server: Server, source: str) -> None:
    with pytest.raises(CatalogError, match="not an http or https address"):
        fetch(source)


def test_a_table_of_no_known_cloud_is_refused(server: Server) -> None:
    with pytest.raises(CatalogError, match="must say of which cloud it is; allowed"):
        refresh(f"{server.address}/prices.csv", KNOWN, used=USED, today=TODAY)


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        '{"schema": 9}',
        '{"schema": 1, "prices": [], "kept": [], "tables": {"aws": {"source": "", "date": "soon"}}}',
        "null",
        '{"schema": 1, "prices": [], "kept": [], "tables": []}',
        "[" * 100_000,
    ],
)
def test_kept_prices_that_are_damaged_fall_back_to_the_snapshot(server: Server, tmp_path: Path, damage: str) -> None:
    save(refresh(server.has("aws", plain(AWS)), KNOWN, used=USED, today=TODAY))
    assert price("c5.xlarge") != old("c5.xlarge").usd_per_hour.dollars
    (tmp_path / "home" / FILE).write_text(damage)
    found = load_catalog()
    assert found.date == date(2026, 8, 1)
    assert "cannot be used" in found.notes[0]
    assert price("c5.xlarge") == old("c5.xlarge").usd_per_hour.dollars


@pytest.mark.parametrize("usd", ["0", "-1", "nan", "1e9", "x"])
def test_a_kept_price_that_was_tampered_with_is_not_used(server: Server, tmp_path: Path, usd: str) -> None:
    save(refresh(server.has("aws", plain(AWS)), KNOWN, used=USED, today=TODAY))
    file = tmp_path / "home" / FILE
    whole = json.loads(file.read_text())
    whole["prices"] = [{"cloud": "aws", "name": "c5.xlarge", "usd_per_hour": usd, "spot_usd_per_hour": None}]
    file.write_text(json.dumps(whole))
    assert price("c5.xlarge") == old("c5.xlarge").usd_per_hour.dollars


def test_clouds_are_refreshed_one_by_one(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    today = datetime.now(UTC).date()
    for count, cloud in enumerate(REGIONS, start=1):
        assert load_catalog().date == date(2026, 8, 1), "the oldest prices count"
        assert main(["catalog", "refresh", "--from", server.has(cloud, plain(table(cloud)))]) == 0
        kept = refreshed_prices()
        assert kept is not None
        assert len(kept.tables) == count
        assert {of for of, _ in kept.prices} == set(kept.tables)
    assert load_catalog().date == today
    assert price("c5.xlarge") == pytest.approx(old("c5.xlarge").usd_per_hour.dollars * 1.25)
    capsys.readouterr()
    older = format_datetime(datetime.now(UTC) - timedelta(days=9), usegmt=True)
    assert main(["catalog", "refresh", "--from", server.has("aws", plain(AWS, Last_Modified=older))]) == 2
    assert f"older than those in use ({today})" in capsys.readouterr().err


def test_prices_are_kept_as_they_were_fetched(server: Server) -> None:
    found = refresh(server.has("aws", plain(AWS)), KNOWN, used=USED, today=TODAY)
    save(found)
    assert refreshed_prices() == found


def test_from_is_only_for_refresh(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "c5.*", "--from", "x"]) == 2
    assert "--from: only for `mlcd catalog refresh`" in capsys.readouterr().err


def test_a_dry_run_says_how_old_the_prices_are(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.yaml").write_text(
        "name: a\nresources: {infra: sim/aws, instance_type: c5.xlarge}\nnum_nodes: 1..2\n"
        "job: {model: alexnet, samples: 5000, epochs: 1}\ngoal: {minimize: time}\n"
    )
    assert main(["train", str(tmp_path / "job.yaml"), "--dry-run"]) == 0
    assert "prices of 2026-08-01 (" in capsys.readouterr().out
