"""What a user's files and arguments may contain: each mistake is one line that names it, with exit code 2."""

import json
import math
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.tiny_onnx import write_mlp

from mlcd.asktell.state import read as read_search
from mlcd.catalog import load_catalog
from mlcd.cli.main import run
from mlcd.cli.output import print_json
from mlcd.clouds.replay import load_workloads
from mlcd.errors import BadInput, SpecError
from mlcd.graphs import read_onnx
from mlcd.jobs.serve_nodes import MOST_SERVING_CONFIGURATIONS
from mlcd.jobs.serving_space import processor_counts
from mlcd.report.terminal import LEAST_COLUMNS, MOST_COLUMNS, columns
from mlcd.units import MOST_USD, Usd
from mlcd.untrusted import Malformed, expanded, on_one_line, printable, read_named, whole_number

TRAIN = """\
name: t
resources: {infra: sim/aws, instance_type: [c5.xlarge, p2.xlarge]}
num_nodes: 1..5
job: {model: resnet152, samples: 50000, epochs: 1}
goal: {minimize: time}
search: {max_trials: 3}
"""
SERVERLESS = """\
name: f
resources: {infra: sim/lambda}
workload: {model: logistic, target_loss: 0.5, max_epochs: 4}
functions: 1..4
memory: [1769]
goal: {minimize: time, budget: 3 USD}
search: {strategy: static}
"""
EVIL = "\x1b]0;owned\x07\x1b[31m \x9b\u202e\x00"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLCD_SKY_PYTHON", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(TRAIN)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The only line on standard error of a command that ends with 2."""
    capsys.readouterr()
    code = run(arguments)
    said = capsys.readouterr()
    assert (code, said.out) == (2, ""), said
    assert said.err.startswith("mlcd: ")
    assert said.err.count("\n") == 1
    assert len(said.err) < 2_200
    assert all(character.isprintable() for character in said.err[:-1]), said.err
    return said.err


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("infra: sim/aws", "infra: replay/~nosuchuser", "job.yaml:2: resources.infra: there is no user 'nosuchuser'"),
        ("infra: sim/aws", f"infra: replay/{'x' * 5000}", "job.yaml:2: resources.infra: is too long for a path"),
        ("infra: sim/aws", 'infra: "replay/a\\0b"', "job.yaml:2: resources.infra: is not a path"),
        ("samples: 50000", f"samples: {'9' * 4300}", "job.yaml:4: job.samples: must be a number"),
        ("samples: 50000", "samples: .nan", "job.yaml:4: job.samples: is out of range"),
        ("samples: 50000", "samples: 1e999", "job.yaml:4: job.samples: is out of range"),
        ("samples: 50000", "samples: 1:30:00", "job.yaml:4: job.samples: must be a number"),
        ("resnet152", "x" * 100_000, "job.yaml:4: job.model: the simulator knows no such model"),
        ("resnet152", '"\\e[31m[red]x\\a"', "job.yaml:4: job.model: the simulator knows no such model"),
        ("minimize: time", "minimize: time, budget: $" + "9" * 4300, "job.yaml:5: goal.budget: "),
        ("minimize: time", f"minimize: time, deadline: {'9' * 400}d", "job.yaml:5: goal.deadline: is out of range"),
        ("1..5", "1..1000000000", "job.yaml:3: num_nodes: is not a number of nodes"),
        ("num_nodes: 1..5", '"' + "k" * 500 + '": 1', "job.yaml:3: ['" + "k" * 80),
        ("max_trials: 3", "strategy: 'heterbo:gate-bound=inf'", "job.yaml:6: search.strategy: "),
        ("max_trials: 3", "strategy: 'heterbo:start=²'", "job.yaml:6: search.strategy: "),
    ],
)
def test_a_bad_value_is_named_with_its_line(
    old: str, new: str, says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "job.yaml").write_text(TRAIN.replace(old, new))
    assert refusal(capsys, "train", "job.yaml", "--dry-run").startswith(f"mlcd: {says}")


@pytest.mark.parametrize("noise", ["0", "1e-300", "0.999999", "0.9999999999999999"])
def test_every_allowed_noise_runs(noise: str, here: Path) -> None:
    (here / "job.yaml").write_text(TRAIN.replace("max_trials: 3", f"max_trials: 3, noise: {noise}"))
    assert run(["train", "job.yaml"]) in (0, 4, 6)


def test_totals_beyond_the_books_fit_nothing_and_say_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "job.yaml").write_text(TRAIN.replace("samples: 50000, epochs: 1", "samples: 1e18, epochs: 1e9"))
    assert run(["train", "job.yaml"]) == 4
    said = capsys.readouterr().out
    assert "beyond what mlcd plans" in said
    assert "check job.samples and job.epochs" in said
    (name,) = (line.split()[-1] for line in said.splitlines() if "mlcd report" in line)
    assert run(["report", name, "--out", "page.html"]) == 0
    assert (here / "page.html").stat().st_size < 300_000


def test_a_trial_beyond_the_books_never_starts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = "trial: {minutes: 10080, extra_minutes_per_3_nodes: 10080, extension: 10}"
    text = TRAIN.replace("max_trials: 3", f"max_trials: 3, {trial}").replace("1..5", "100000")
    (here / "job.yaml").write_text(text.replace("samples: 50000", "samples: 50000, batch: 100000"))
    assert run(["train", "job.yaml", "--dry-run"]) == 3
    assert f"may cost more than {MOST_USD}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("target", ["0", "5e-324", "1e-300", "-1e12"])
def test_every_target_loss_runs_or_is_refused(target: str, here: Path, recwarn: pytest.WarningsRecorder) -> None:
    text = SERVERLESS.replace("target_loss: 0.5", f"target_loss: {target}").replace("static", "mpc")
    (here / "job.yaml").write_text(text)
    assert run(["serverless", "job.yaml"]) in ((0, 4) if float(target) > 0 else (2,))
    assert not recwarn.list


def test_what_the_problem_refuses_names_the_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "job.yaml").write_text(SERVERLESS.replace("0.5", "1e12"))
    said = refusal(capsys, "serverless", "job.yaml", "--dry-run")
    assert said.startswith("mlcd: job.yaml:3: workload.target_loss: 1e+12 is not below")
    sizes = ", ".join(map(str, range(128, 5000)))
    (here / "job.yaml").write_text(SERVERLESS.replace("1..4", "1..100000").replace("1769", sizes))
    assert "job.yaml:4: functions: with memory makes" in refusal(capsys, "serverless", "job.yaml", "--dry-run")


@pytest.mark.parametrize("cpus", [2, 512])
def test_a_serving_space_is_bounded_before_it_is_built(
    cpus: int, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strategies for serving look at all pairs of configurations: with two processors there are 24,576 of them."""
    write_mlp(here / "m.onnx")
    monkeypatch.setattr("mlcd.jobs.serving_space.usable_cpus", lambda: tuple(range(cpus)))
    (here / "job.yaml").write_text(
        "name: s\nmodel: m.onnx\nknobs: {batch: 1..4096, threads: 1..1024, replicas: 1..1024}\n"
        "goal: {maximize: requests per dollar}\n"
    )
    assert "job.yaml:3: knobs: makes " in refusal(capsys, "serve", "job.yaml", "--dry-run")


@pytest.mark.parametrize("cpus", [1, 2, 16, 17, 192, 512])
def test_what_a_large_machine_offers_by_default_is_small_enough(cpus: int) -> None:
    counts = processor_counts(cpus)
    assert counts[0] == 1
    assert counts[-1] == cpus
    assert 4 * 2 * sum(a * b <= cpus for a in counts for b in counts) <= MOST_SERVING_CONFIGURATIONS / 4


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("fifo", "fifo: cannot be read: should be a regular file"),
        ("loop", "loop: cannot be read: "),
        ("/dev/zero", "/dev/zero: cannot be read: should be a regular file"),
        (".", ".: is a directory"),
        ("missing.yaml", "missing.yaml: there is no such file"),
        ("job.yaml/x", "job.yaml/x: cannot be read: "),
        ("\udcff.yaml", "\\udcff"),
        (EVIL.replace("\0", ""), "there is no such file"),
        ("9" * 4300, "9" * 80),
    ],
)
def test_a_job_file_that_is_no_file_is_named(path: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("train", "serverless"):
        said = refusal(capsys, command, path, "--dry-run")
        assert says in said or "�" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "x", "--out", "~nosuchuser/x.html"],
        ["report", "x", "--out", "x" * 300],
        ["train", "job.yaml", "--dry-run", "--picture", "fifo"],
        ["train", "job.yaml", "--dry-run", "--picture", "~nosuchuser/a.svg"],
        ["train", "job.yaml", "--dry-run", "--seed", "9" * 4301],
        ["train", "job.yaml", "--dry-run", "--seed", "9" * 100],
        ["train", "job.yaml", "--dry-run", "--parallel", "9" * 4301],
        ["train", "job.yaml", "--dry-run", "--budget", "$" + "9" * 4301],
        ["train", "job.yaml", "--dry-run", "--deadline", "1" * 4301 + "s"],
        ["train", "job.yaml", "--dry-run", "--budget", "nan"],
        ["train", "job.yaml", "--dry-run", "--on", f"replay/{EVIL}".replace("\0", "")],
        ["train", "job.yaml", "--dry-run", "--on", ""],
        ["serve", "~nosuchuser/m.onnx", "--dry-run"],
        ["serve", "m.onnx", "--size", "x=²", "--dry-run"],
        ["serve", "m.onnx", "--size", "x=" + "9" * 5000, "--dry-run"],
        ["bench", "serve", "--sim", "--trials", "9" * 400],
        ["bench", "suggest", "--candidates", "1000000000"],
        ["init", "x" * 300],
        ["catalog", EVIL.replace("\0", "").replace("[", "")],
        ["show", "x\udc80"],
        [EVIL.replace("\0", "")],
        ["train", "job.yaml", f"--{EVIL}".replace("\0", "")],
    ],
)
def test_a_bad_argument_is_refused_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    refusal(capsys, *arguments)


def test_a_catalog_in_yaml_is_smaller(here: Path) -> None:
    """The parser of YAML takes hundreds of times the size of its file."""
    (here / "a.yaml").write_text(f"[{'a,' * 600_000}a]")
    with pytest.raises(BadInput, match=r"a.yaml: the catalog is larger than 1,048,576 bytes"):
        load_catalog(here / "a.yaml")


@pytest.mark.parametrize("name", ["a.csv", "a.yaml"])
@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"\0", b"[" * 900, b"a: &a [*a]\n", b"x" * 5_000_000, b"instances:\n- {? [a] : b}\n", b'"x\n', b""],
)
def test_a_hostile_catalog_is_refused(name: str, content: bytes, here: Path) -> None:
    (here / name).write_bytes(content)
    with pytest.raises(BadInput, match=name):
        load_catalog(here / name)


def test_a_catalog_that_is_no_file_is_refused(here: Path) -> None:
    for path in (here / "fifo", here / "loop", here, here / ("x" * 300), Path("/dev/zero")):
        with pytest.raises(BadInput):
            load_catalog(path)


INSTANCES = b"instance,usd_per_hour\na,1\n"


@pytest.mark.parametrize(
    ("instances", "rows", "says"),
    [
        (INSTANCES, b"instance,nodes,seconds\na,1e300,5\n", "nodes: is out of range"),
        (INSTANCES, b"instance,nodes,seconds\na,1,1e300\n", "seconds: is out of range"),
        (INSTANCES, b"instance,nodes,seconds\na,1,1e-300\n", "seconds: is out of range"),
        (INSTANCES, b"instance,nodes,seconds\na,1," + b"9" * 5000 + b"\n", "seconds: "),
        (b"instance,usd_per_hour\na,1e300\n", b"instance,nodes,seconds\na,1,1\n", "usd_per_hour: is out of range"),
        (INSTANCES, b"instance,nodes,seconds\n" + b"a,1,5\n" * 200_001, "more rows"),
        (INSTANCES, b"\xff", "is not UTF-8 text"),
    ],
)
def test_a_hostile_table_is_refused(instances: bytes, rows: bytes, says: str, here: Path) -> None:
    folder = here / "tables"
    folder.mkdir()
    (folder / "instances.csv").write_bytes(instances)
    (folder / "job.csv").write_bytes(rows)
    with pytest.raises(BadInput, match=says) as refused:
        load_workloads(folder)
    assert len(str(refused.value)) < 500


def test_a_table_with_a_byte_order_mark_is_read_and_a_pipe_is_not(here: Path) -> None:
    folder = here / "tables"
    folder.mkdir()
    (folder / "instances.csv").write_bytes(b"\xef\xbb\xbf" + INSTANCES)
    (folder / "job.csv").write_bytes(b"\xef\xbb\xbfinstance,nodes,seconds\na,1,5\n")
    assert list(load_workloads(folder)) == ["job"]
    (folder / "job.csv").unlink()
    os.mkfifo(folder / "job.csv")
    with pytest.raises(BadInput, match="regular file"):
        load_workloads(folder)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\0", b"[" * 100_000, b'{"format": NaN}', b'{"format": ' + b"9" * 5000 + b"}", b'{"a":1,"a":1}'],
)
def test_a_hostile_saved_search_is_refused(content: bytes, here: Path) -> None:
    (here / "s.json").write_bytes(content)
    with pytest.raises(BadInput, match=r"s\.json"):
        read_search(here / "s.json")


def test_a_saved_search_that_is_a_pipe_is_refused(here: Path) -> None:
    with pytest.raises(BadInput, match="regular file"):
        read_search(here / "fifo")


def test_changed_models_are_refused_or_read(here: Path) -> None:
    good = write_mlp(here / "good.onnx").read_bytes()
    chance = np.random.default_rng(5)
    for _ in range(150):
        changed = bytearray(good)
        for _ in range(int(chance.integers(1, 30))):
            changed[int(chance.integers(min(len(changed), 400)))] = int(chance.integers(256))
        (here / "bad.onnx").write_bytes(changed)
        with suppress(BadInput):
            read_onnx(here / "bad.onnx")


@pytest.mark.parametrize("make", ["zip", "empty", "text", "object", "huge", "fifo"])
def test_hostile_arrays_are_refused(make: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = here / "data"
    data.mkdir()
    np.save(data / "y.npy", np.zeros(100))
    if make == "zip":
        np.savez(here / "x.npz", a=np.zeros(3))
        (here / "x.npz").rename(data / "x.npy")
    elif make == "object":
        np.save(data / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    elif make == "fifo":
        os.mkfifo(data / "x.npy")
    elif make == "huge":
        np.save(data / "x.npy", np.zeros((2, 2)))
        whole = (data / "x.npy").read_bytes().replace(b"(2, 2)", b"(9" + b"9" * 30 + b",)", 1)
        (data / "x.npy").write_bytes(whole)
    else:
        (data / "x.npy").write_bytes(b"" if make == "empty" else b"text")
    (here / "job.yaml").write_text(
        SERVERLESS.replace("sim/lambda", "lithops/localhost").replace("{model", "{data: data, model")
    )
    assert "job.yaml:3: workload.data: " in refusal(capsys, "serverless", "job.yaml", "--dry-run")


def test_settings_of_lithops_are_read_with_limits(here: Path) -> None:
    from mlcd.jobs.serverless import _settings
    from mlcd.spec.functions import parse_serverless

    spec = parse_serverless(SERVERLESS.replace("{infra", "{settings: l.yaml, infra"), file=str(here / "job.yaml"))
    (here / "l.yaml").write_text("lithops: {backend: localhost}\n")
    assert _settings(spec) == {"lithops": {"backend": "localhost"}}
    bomb = "a: &a [x]\nb: [*a, *a]\n"
    for bad in (bomb, "[" * 5000, "x" * 300_000, "!!python/object/apply:os.system [id]", "- a\n"):
        (here / "l.yaml").write_text(bad)
        with pytest.raises(SpecError, match=r"resources\.settings"):
            _settings(spec)


def test_json_escapes_what_a_terminal_would_obey(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"a": f"{EVIL}é日\ud800"}
    print_json(value)
    said = capsys.readouterr().out
    assert json.loads(said) == value
    assert "é日" in said
    assert all(character.isprintable() for character in said if character != "\n")


@pytest.mark.parametrize(
    ("given", "width"),
    [("²", None), ("9" * 5000, None), ("0", None), ("-5", None), ("5", LEAST_COLUMNS), ("9" * 9, MOST_COLUMNS)],
)
def test_any_number_of_columns_is_read(
    given: str, width: int | None, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    monkeypatch.setenv("COLUMNS", given)
    with (here / "out").open("w") as stream:
        assert columns(stream) == width


def test_money_of_any_size_is_written_and_compared() -> None:
    huge = Usd.of("9" * 39)
    assert str(huge) == "$1.00e+39"
    assert str(Usd(-(10**400))) == "-$1.00e+394"
    assert math.isfinite(Usd(10**400).dollars)
    assert Usd.of("0.17").for_seconds(math.inf) > MOST_USD
    for text in ("9" * 4000, "1e999999999", "1e50", "nan", "inf"):
        with pytest.raises(ValueError, match="not an amount of money") as refused:
            Usd(text)
        assert len(str(refused.value)) < 200


def test_paths_and_texts_of_strangers(here: Path) -> None:
    assert expanded("a/b") == Path("a/b")
    for bad in ("~nosuchuser/x", "a\0b", "x" * 300, "a/" * 3000, "\ud800"):
        with pytest.raises(Malformed):
            expanded(bad)
    (here / "link").symlink_to("job.yaml")
    assert read_named(here / "link", most_bytes=1000) == TRAIN.encode()
    assert printable("a\nb\t\x1b[31m") == "a\nb\t�[31m"
    assert on_one_line("a\nb\tc") == "a b c"
    assert len(printable("x" * 10**6)) <= 2_001
    assert (whole_number("12"), whole_number("²"), whole_number("9" * 19), whole_number("")) == (12, None, None, None)


def test_a_stream_is_silenced_without_a_free_descriptor() -> None:
    program = """
import os, resource
from mlcd.cli.main import _silence
os.closerange(3, 100)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
_silence(1)
os.write(1, b"nowhere")
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(sys.platform != "linux", reason="limits on data are of Linux")
def test_a_process_without_room_for_numbers_says_so_at_once() -> None:
    """With less, a library that is imported later never returns."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (96 << 20, 96 << 20))"
    program = f"{limited}; import sys; from mlcd.cli.main import run; sys.exit(run(['train', 'job.yaml']))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == "mlcd: 96 MiB of data are allowed here (ulimit -d); raise that to at least 192 MiB\n"
