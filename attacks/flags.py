"""Arguments and environments that are wrong, hostile or extreme, over every command and every one of its parameters.

Nothing is started: `train`, `serve` and `serverless` get `--dry-run` (a share of `train` and `serverless` runs on a
simulated cloud), `down` gets `--dry-run`, `bench` gets workloads that do not exist, `ui` an address that is not here.
Servers of PostgreSQL are named that do not answer.
"""

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import click

from attacks.attack import Attack, Ended, Kind, Tally, judge
from attacks.forked import Case, ended, quiet_env, warm_up
from attacks.job_files import MOST_MESSAGE_CHARACTERS, odd_characters, write_model

RUN_SHARE = 0.03
SECRET = "hunter2hunter2"
"""A password: nothing may print it."""
_STORES = (
    *("home", "new", "folder", "job.yaml", "fifo", "missing/x", "~nosuchuser", "", "."),
    *(f"postgresql://ana:{SECRET}@127.0.0.1:1/team", "postgresql://127.0.0.1:1/x", "postgresql://", "mysql://x"),
)
_NUMBERS = (
    *("0", "-1", "1", "2", "1e3", "0.5", "nan", "inf", "-inf", "1e999", "1e-400", "9" * 4299, "9" * 4301, "²", "٣"),
    *("9223372036854775807", "9223372036854775808", "0x10", "1_000", "1,000", "+5", " 5", "5 ", "1e18", "-0", "00"),
)
_TEXTS = (
    *("", " ", "\n", "\t", "-", "--", "---", "=", ",", ";", "*", "?", "[", "{}", "%s", "$HOME", "`id`", "'", '"', "\\"),
    *("~nosuchuser", "~nosuchuser/x.svg", "~", "/", ".", "..", "/dev/null", "/dev/zero", "/dev/full", "/proc/self/mem"),
    *(
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "\x9b31m",
        "\u202eevil",
        "a\u2028b",
        "[red]x[/red]",
        "[link=x]y[/link]",
    ),
    *(
        "a" * 300,
        "a" * 5000,
        "é" * 300,
        "日本語",
        "\udcff\udcfe",
        "\udce9.yaml",
        "x\udc80",
        "😀",
        "\ufeff",
        "NaN",
        "None",
    ),
    *("sim/aws", "sim/nosuch", "sim", "local", "slurm", "minicloud", "aws", "gcp/x", "replay/.", "replay/~nosuchuser"),
    *("lithops/localhost", "sim/lambda", "kubernetes", "100 USD", "$1e30", "1e30", "-5 USD", "5 EUR", "$" + "9" * 4300),
    *(
        "6h30m",
        "1e300s",
        "-5h",
        "0s",
        "2026-12-01T18:00Z",
        "9999-12-31T23:59:59Z",
        "2001-01-01",
        "1" * 4300 + "s",
        "1d1d",
    ),
    *(
        "heterbo",
        "heterbo:start=2",
        "heterbo:start=²",
        "heterbo:nosuch=1",
        "random",
        "mpc",
        "siren",
        "informed",
        "python:a:b",
    ),
    *(
        "p99=50ms",
        "p99=1e999ms",
        "p99",
        "=5ms",
        "500/s",
        "1e9/s",
        "rate",
        "requests per dollar",
        "1..64",
        "1..1000000000",
    ),
    *(
        "64..1",
        "512,1769",
        "512,,",
        "1e9",
        "batch=1",
        "x=" + "9" * 5000,
        "=5",
        "a=b",
        "hsp",
        "bsp",
        "c5.*",
        "aws-62",
        "p3.2x",
    ),
)
_PATHS = (
    *(
        "job.yaml",
        "serve.yaml",
        "functions.yaml",
        "bad.yaml",
        "model.onnx",
        "broken.onnx",
        "folder",
        "fifo",
        "link",
        "loop",
    ),
    *(
        "missing.yaml",
        "missing/job.yaml",
        "job.yaml/x",
        "dangling",
        "out.svg",
        "out.html",
        "folder/out.svg",
        "no/out.svg",
    ),
)
_RUNS = ("t-", "f-", "t", "f", "nosuch", "", "%", "_", "t-%", "../x")
_LAST = {
    "train": ["--dry-run"],
    "serve": ["--dry-run"],
    "serverless": ["--dry-run"],
    "down": ["--dry-run"],
    "ui": ["--no-open", "--host", "192.0.2.1"],  # an address that no machine has: it is refused last
    "bench train": ["--sim", "--workloads", "nosuch", "--jobs", "1", "--seeds", "1"],
    "bench serve": ["--sim", "--targets", "nosuch", "--jobs", "1", "--seeds", "1", "--strategies", "random"],
    "bench serverless": ["--workloads", "nosuch", "--jobs", "1", "--seeds", "1"],
    "bench suggest": ["--candidates", "62", "--observations", "2", "--repeats", "3"],
    "bench scavenger": ["--jobs", "1"],
}
"""What keeps a command from starting something or from taking long. The last value of an option counts."""
_ENVIRONMENT = {
    "MLCD_HOME": (
        "relative",
        "",
        "~nosuchuser",
        "~",
        "job.yaml",
        "/dev/null",
        "/proc/nosuch",
        "x" * 300,
        "dangling",
    ),
    "MLCD_CATALOG": (
        "",
        "missing.csv",
        "folder",
        "fifo",
        "bad.yaml",
        "bad.csv",
        "/dev/zero",
        "~nosuchuser/x.csv",
        "x" * 300,
    ),
    "MLCD_STORE": (
        "",
        "postgresql://",
        f"postgresql://ana:{SECRET}@127.0.0.1:1/team",
        f"postgres://ana:{SECRET}@127.0.0.1:1/team?sslmode=x",
        f"postgresql://ana:{SECRET}@[::1/team",
        f"postgresql://ana:{SECRET}%zz@127.0.0.1:1/team",
        f"host=127.0.0.1 port=1 password={SECRET}",
        f"mysql://ana:{SECRET}@h/x",
        "postgresql://127.0.0.1:99999/x",
        "postgresql://127.0.0.1:1/" + "x" * 5_000,
        "postgresql:///x?host=/nosuch",
        "\x1b[31m",
        "folder",
        "sqlite:///x",
        "postgresql://127.0.0.1:1/x?options=-cx%3Dy&passfile=/dev/zero",
    ),
    "COLUMNS": ("0", "-5", "²", "9" * 5000, "1", "20", "x", "99999999", " 80"),
    "NO_COLOR": ("", "1"),
    "FORCE_COLOR": ("", "0", "1", "x"),
    "TERM": ("dumb", "xterm", "", "\x1b"),
    "MLCD_SKY_PYTHON": ("", "~nosuchuser", "/dev/zero", "folder"),
    "HOME": ("", "/proc/nosuch", "relative"),
    "TZ": ("Nowhere/Land", "UTC+99"),
    "LANG": ("C", "xx_XX.ISO-8859-1"),
}


def _attack(count: int, seed: int, folder: Path) -> Tally:
    warm_up()
    prepared = folder / "prepared"
    _prepare(prepared, quiet_env(folder))
    tally = Tally()
    for case, end in ended(_cases(count, seed, folder, prepared)):
        judge(end, tally, case.number, case.what)
        _check(case, end, tally)
        shutil.rmtree(case.folder, ignore_errors=True)
    return tally


def _prepare(folder: Path, env: dict[str, str]) -> None:
    """A folder with job files, models, odd files, and a home with a run of each kind that can be simulated."""
    folder.mkdir()
    (folder / "job.yaml").write_text(
        "name: t\nresources: {infra: sim/aws, instance_type: [c5.xlarge, p2.xlarge]}\nnum_nodes: 1..5\n"
        "job: {model: resnet152, samples: 50000, epochs: 1}\ngoal: {minimize: time, budget: 100 USD}\n"
        "search: {max_trials: 3}\n"
    )
    (folder / "functions.yaml").write_text(
        "name: f\nresources: {infra: sim/lambda}\nworkload: {model: logistic, target_loss: 0.5, max_epochs: 4}\n"
        "functions: 1..4\nmemory: [1769]\ngoal: {minimize: time, budget: 3 USD}\nsearch: {strategy: static}\n"
    )
    (folder / "serve.yaml").write_text("name: s\nmodel: model.onnx\ngoal: {maximize: requests per dollar}\n")
    (folder / "bad.yaml").write_text("a: [1\n\tb: {\n")
    (folder / "bad.csv").write_text('cloud,name\n"x\n')
    (folder / "broken.onnx").write_bytes(b"\x08\x07\x12\xff\xff")
    write_model(folder / "model.onnx")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to("job.yaml")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nothing")
    calls = [["train", "job.yaml"], ["serverless", "functions.yaml", "--on", "sim/lambda"]]
    case = Case(number=-1, what="prepare", calls=calls, folder=folder, env={**env, "MLCD_HOME": str(folder / "home")})
    for _, end in ended([case]):
        if end.code != 0:
            raise RuntimeError(f"the attack's own runs ended with {end.code}: {end.stderr[-500:]}")


def _cases(count: int, seed: int, folder: Path, prepared: Path) -> Iterator[Case]:
    commands = _commands()
    env = quiet_env(folder)
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        name = chance.choice(sorted(commands))
        here = folder / f"case-{number}"
        shutil.copytree(prepared, here, symlinks=True, copy_function=_copied)
        os.mkfifo(here / "fifo")
        arguments = _arguments(chance, name, commands[name])
        odd: dict[str, str] = {}
        if chance.random() < 0.25:
            for variable in chance.sample(sorted(_ENVIRONMENT), chance.choice((1, 1, 2))):
                odd[variable] = chance.choice(_ENVIRONMENT[variable])
        shown = f"{name} {arguments!r}"[:300] + (f" with {odd!r}"[:150] if odd else "")
        yield Case(
            number=number,
            what=shown,
            calls=[[*name.split(), *arguments] if name else arguments],
            folder=here,
            env={**env, "MLCD_HOME": str(here / "home"), **odd},
        )


def _copied(source: str, target: str) -> str:
    """Like shutil.copy2, but leaves out what is no file: opening a FIFO would block."""
    return shutil.copy2(source, target) if Path(source).is_file() or Path(source).is_symlink() else target


def _commands() -> dict[str, click.Command]:
    """Every command by its words; "" is mlcd itself."""
    from mlcd.cli.main import cli  # noqa: PLC0415 - imported by warm_up

    context = click.Context(cli)
    found: dict[str, click.Command] = {"": cli}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        if command is None or name == "demo":  # a search that takes long and has two parameters
            continue
        found[name] = command
        if isinstance(command, click.Group):
            found.update({f"{name} {below}": each for below, each in command.commands.items()})
    return found


def _arguments(chance: random.Random, name: str, command: click.Command) -> list[str]:
    made: list[str] = []
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    for option in chance.sample(options, min(len(options), chance.choice((0, 1, 1, 2, 3, 5)))):
        for _ in range(2 if chance.random() < 0.1 else 1):
            made += _option(chance, option)
    if chance.random() < 0.05:
        made += [chance.choice(("--nosuch", "-x", "--dry-rum", "--=", "-", "--help", "-h", "--version", "-o", "--"))]
    positional = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    for argument in positional:
        times = chance.choice((1, 1, 1, 1, 1, 0, 2)) if argument.nargs == 1 else chance.choice((0, 1, 3, 50))
        made += [_positional(chance, name) for _ in range(times)]
    if not positional and chance.random() < 0.05:
        made.append(_positional(chance, name))
    if name in ("train", "serverless") and chance.random() < RUN_SHARE:
        return [*made, "--on", "sim/aws" if name == "train" else "sim/lambda"]
    return [*made, *_LAST.get(name, ())]


def _option(chance: random.Random, option: click.Option) -> list[str]:
    flag = chance.choice([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return [flag] if chance.random() < 0.95 else [f"{flag}={chance.choice(_TEXTS)}"]
    values = []
    for _ in range(option.nargs):
        good = _good(option)
        pool = chance.choice((_NUMBERS, _TEXTS, _TEXTS, _PATHS, good or _TEXTS, good or _NUMBERS))
        values.append(_safe(chance.choice(pool)))
    if len(values) == 1 and flag.startswith("--") and chance.random() < 0.3:
        return [f"{flag}={values[0]}"]
    return [flag, *values] if chance.random() < 0.97 else [flag]


def _good(option: click.Option) -> tuple[str, ...]:
    """Values that the option accepts, where its type tells them."""
    if isinstance(option.type, click.Choice):
        return tuple(map(str, option.type.choices))
    if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
        return ("0", "1", "2", "3")
    return ()


def _positional(chance: random.Random, name: str) -> str:
    pools: tuple[tuple[str, ...], ...] = (_PATHS, _PATHS, _TEXTS, _NUMBERS)
    if name in ("show", "report", "resume"):
        pools = (_RUNS, _RUNS, _RUNS, _TEXTS, _NUMBERS)
    if name.startswith("store"):
        pools = (_STORES, _STORES, _STORES, _TEXTS)
    if name == "ui":
        pools = (_RUNS, _RUNS, _TEXTS)
    if name == "init":  # writes where it is told to
        pools = (("new.yaml", "job.yaml", "folder", "fifo", "no/new.yaml", "\x1b[31m.yaml", "\udcff.yaml", "a" * 300),)
    return _safe(chance.choice(chance.choice(pools)))


def _safe(text: str) -> str:
    """An argument of a process cannot contain NUL."""
    return text.replace("\0", "")


def _check(case: Case, end: Ended, tally: Tally) -> None:
    """A refusal is one line of bounded length with exit code 2; nothing printed controls a terminal."""
    if end.code is None or (tally.findings and tally.findings[-1].case == case.number):
        return
    message = end.stderr.strip().rpartition("\n")[2]
    if SECRET in end.stdout + end.stderr:
        tally.find(Kind.WRONG, case.number, f"{case.what}: prints a password: {message[:300]}")
    if end.code in (2, 7) and (len(end.stderr) > MOST_MESSAGE_CHARACTERS or end.stderr.count("\n") != 1):
        tally.find(Kind.WRONG, case.number, f"{case.what}: {len(end.stderr):,} characters: {message[:300]!r}")
    if end.code == 1 and not _may_fail(case):
        tally.find(Kind.WRONG, case.number, f"{case.what}: exit code 1: {message[:300]}")
    colours = case.env.get("FORCE_COLOR", "") not in ("", "0") and not case.env.get("NO_COLOR")
    if odd := odd_characters(end.stdout + end.stderr, colours=colours):
        tally.find(Kind.WRONG, case.number, f"{case.what}: prints {odd!r}: {message[:300]!r}")


def _may_fail(case: Case) -> bool:
    """Exit code 1 is for a home or a server that cannot be used, and for `mlcd check` where something is wrong."""
    if case.env.get("MLCD_STORE") or case.what.startswith("store"):
        return True
    return case.env["MLCD_HOME"] != str(case.folder / "home") or case.env["HOME"] == "" or case.what.startswith("check")


ATTACKS = (
    Attack(name="flags", what="wrong, hostile and extreme arguments and environments", count=5_000, run=_attack),
)
