"""Job files that are wrong, hostile or extreme: checked with `--dry-run`, a share of them run on simulated clouds."""

import json
import random
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from attacks.attack import Attack, Ended, Kind, Tally, judge
from attacks.forked import Case, ended, quiet_env, warm_up
from attacks.job_values import EXTREMES

STDIN_SHARE = 0.1
"""Share of the job files that are given on standard input."""
RUN_SHARE = 0.08
"""Share of the job files of `train` and `serverless` that are run on a simulated cloud, shown and reported."""
MODEL_SHARE = 0.2
"""Share of the job files of `serve` whose model is changed as well."""
MOST_MESSAGE_CHARACTERS = 4_000

Fields = dict[str, "Fields | str"]
"""A job file's fields; a value is YAML text."""

_TRAIN: Fields = {
    "name": "t",
    "resources": {"infra": "sim/aws", "instance_type": "[c5.xlarge, c5.4xlarge, p2.xlarge]"},
    "num_nodes": "1..20",
    "run": "python train.py",
    "job": {"model": "resnet152", "samples": "50000", "epochs": "90", "batch": "512", "topology": "ring"},
    "goal": {"minimize": "time", "budget": "100 USD"},
    "search": {"strategy": "heterbo", "max_trials": "4", "trial": {"minutes": "10"}},
}
_SERVE: Fields = {
    "name": "s",
    "model": "model.onnx",
    "knobs": {"batch": "[1, 4]", "threads": "1..2", "replicas": "1", "precision": "[fp32]"},
    "load": {"headroom": "0.1", "verify": "60s"},
    "goal": {"maximize": "requests per dollar", "slo": "{p99: 50ms}"},
    "search": {"strategy": "falcon", "max_trials": "3", "trial": {"seconds": "15s"}},
}
_SERVERLESS: Fields = {
    "name": "f",
    "resources": {"infra": "sim/lambda"},
    "workload": {"model": "logistic", "batch": "256", "target_loss": "0.5", "max_epochs": "6"},
    "functions": "1..12",
    "memory": "[512, 1769]",
    "sync": "hsp",
    "goal": {"minimize": "time", "budget": "3 USD"},
    "search": {"strategy": "static"},
}
_KINDS = (("train", _TRAIN), ("train", _TRAIN), ("serve", _SERVE), ("serverless", _SERVERLESS))

_ESCAPES = '"\\e]0;owned\\a\\e[31mred [red]x[/red] [link=http://x]y[/link]"'
_NUMBERS = (
    *("0", "-0", "1", "-1", "2", "0.5", "-0.5", "1e-300", "5e-324", "1e-9", "0.999999", "0.9999999999999999", "1e300"),
    *("1.7976931348623157e308", "1e309", "1e999", "-1e999", ".nan", ".inf", "-.inf", "1e18", "999999999999999999"),
    *("9223372036854775807", "9223372036854775808", "18446744073709551616", "1" + "0" * 99, "9" * 4300, "1e-400"),
    *(
        "0x7fffffffffffffff",
        "0o777",
        "0777",
        "1_000",
        "1,000",
        "1:30:00",
        "190:20:30",
        "+5",
        "- 5",
        "٣",
        "½",
        "1e",
        "0b1",
    ),
    *(
        "1" + "0" * 5000 + ".5",
        "0." + "0" * 5000 + "1",
        "1e" + "9" * 50,
        "100000",
        "1000000000",
        "65536",
        "3.0000000001",
    ),
)
_TEXTS = (
    *(
        '""',
        '" "',
        "~",
        "null",
        "true",
        "false",
        "yes",
        "no",
        "on",
        "off",
        "2026-12-01",
        "2001-12-14t21:59:43.10-05:00",
    ),
    *(
        "2026-12-01T18:00Z",
        "9999-12-31T23:59Z",
        "0001-01-01T00:00Z",
        '"\\0"',
        '"a\\0b"',
        '"\\ud800"',
        '"\\uffff"',
        _ESCAPES,
    ),
    *(
        "~nosuchuser",
        "~nosuchuser/x",
        "~",
        "/dev/zero",
        "/dev/stdin",
        "/proc/self/mem",
        "..",
        "/",
        "a/../../b",
        "''",
        "'''",
    ),
    *(
        "[red]x[/red]",
        "{{7*7}}",
        "${HOME}",
        "$(id)",
        "`id`",
        "<script>alert(1)</script>",
        "&amp;",
        "%s%n",
        "{0.__class__}",
    ),
    *("a" * 1000, "a" * 100_000, "é" * 5000, "日本語", "\u202eevil", "a\u2028b", "*", "?", "[", "**", "c5.*", "aws-62"),
    *(
        "heterbo:prune=off",
        "heterbo:start=1e999",
        "heterbo:start=" + "9" * 4300,
        "heterbo:nosuch=1",
        "random",
        "falcon",
    ),
    *(
        "python:os:system",
        "os:system",
        "exhaustive",
        "mpc",
        "siren",
        "static-n",
        "static",
        "static-n:n=0",
        "cherrypick",
    ),
    *(
        "sim/aws",
        "sim/nosuch",
        "sim",
        "replay/.",
        "replay/~nosuchuser",
        "replay//dev",
        "local",
        "slurm",
        "minicloud",
        "aws",
    ),
    *("lithops/localhost", "lithops/aws_lambda", "sim/lambda", "kubernetes", "gcp/us-central1", "replay/" + "x" * 5000),
    *(
        "1..1000000000",
        "1..100000",
        "100000..100000",
        "5..1",
        "1...5",
        "1..",
        "..5",
        "0..5",
        "[1, 1]",
        "[]",
        "[[1]]",
        "{}",
    ),
    *(
        "1000000000 USD",
        "$1e30",
        "1e30 USD",
        "$" + "9" * 4300,
        "$0",
        "$0.0000001",
        "$-5",
        "€5",
        "5 EUR",
        "1,00 USD",
        "$.5",
    ),
    *(
        "1e300s",
        "9" * 400 + "d",
        "0s",
        "-5h",
        "1h1h1h",
        "3650d",
        "3651d",
        "1" * 4300 + "s",
        "p99=1ms",
        "1ms",
        "0ms",
        "5/s",
    ),
    *(
        "{p99: 1e999ms}",
        "{p50: 1us, p99: 1s}",
        "{p1: 5ms}",
        "{p99: " + "9" * 4300 + "ms}",
        "500000000/s",
        "1e9/s",
        "[a, b]",
    ),
    *("{a: 1}", "{default: 1..5}", '{default: 1..100000, "*": 1..100000}', "[c5.*, p2.*, p3.*, m5.*, r5.*]", "{by: x}"),
    *(
        "[" + ", ".join(map(str, range(1, 3000))) + "]",
        "[" * 25 + "]" * 25,
        "{a: " * 30 + "1" + "}" * 30,
        "(?P<rate>.*)*x",
    ),
    *(
        "!!python/object/apply:os.system [id]",
        "!!int 5",
        "!x y",
        "&a 5",
        "*a",
        "|\n    multi\n    line",
        ">-\n    folded",
    ),
)
_LACKS = r"minicloud cannot run here: |Slurm's \w+ is not on PATH|\w+: MLCD_SKY_PYTHON="
"""How a message begins that says what the machine lacks for a cloud that a job names: no field of the file is wrong."""
_OPTION_VALUES = (
    "0",
    "1",
    "2",
    "-1",
    "0.5",
    "1e-300",
    "1e9",
    "1e300",
    "nan",
    "inf",
    "on",
    "off",
    "all",
    "auto",
    "x",
    "9" * 30,
)

_HEADS = (
    "%YAML 1.1\n---\n",
    "%TAG ! tag:x,2026:\n---\n",
    "---\n---\n",
    "\ufeff",
    "# x\n" * 100_000,
    "a: b\n" * 60_000,
    "\n" * 100_000,
)
_BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + k)}: &{chr(98 + k)} [{','.join(['*' + chr(97 + k)] * 9)}]\n" for k in range(9)
)


def _attack(count: int, seed: int, folder: Path) -> Tally:
    warm_up()
    write_model(folder / "model.onnx")
    tally = Tally()
    for case, end in ended(_cases(count, seed, folder)):
        judge(end, tally, case.number, case.what)
        _check(case, end, tally)
        shutil.rmtree(case.folder, ignore_errors=True)
    return tally


def _cases(count: int, seed: int, folder: Path) -> Iterator[Case]:
    env = quiet_env(folder)
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        here = folder / f"case-{number}"
        here.mkdir()
        command, base = chance.choice(_KINDS)
        what, data = _made(chance, command, base)
        job = here / "job.yaml"
        job.write_bytes(data)
        if command == "serve" and chance.random() < MODEL_SHARE:
            what = f"{what}; a changed model"
            (here / "model.onnx").write_bytes(_changed(chance, bytearray((folder / "model.onnx").read_bytes())))
        elif command == "serve":
            (here / "model.onnx").symlink_to(folder / "model.onnx")
        output = chance.choice(("text", "text", "json"))
        given = "-" if chance.random() < STDIN_SHARE else "job.yaml"
        yield Case(
            number=number,
            what=f"{command} {what}" + ("; on standard input" if given == "-" else ""),
            calls=_calls(chance, command, output, given),
            folder=here,
            stdin=job if given == "-" else None,
            env={**env, "MLCD_HOME": str(here / "home"), "COLUMNS": chance.choice(("", "80", "20"))},
        )


def _calls(chance: random.Random, command: str, output: str, given: str) -> list[list[str] | Callable[[], list[str]]]:
    seed = str(chance.randrange(1000))
    if command == "serve" or chance.random() > RUN_SHARE:
        return [[command, given, "--dry-run", "--seed", seed, "-o", output]]
    on = chance.choice(("sim/aws", "sim/aws", "sim/aws,sim/gcp")) if command == "train" else "sim/lambda"
    run = [command, given, "--on", on, "--seed", seed, "-o", output]
    return [run, lambda: ["show", _run_id(), "-o", output], lambda: ["report", _run_id(), "--out", "page.html"]]


def _run_id() -> str:
    from mlcd.store.store import Store, home  # noqa: PLC0415 - imported by warm_up

    with Store(home()) as store:
        return store.runs()[0].run_id


def _check(case: Case, end: Ended, tally: Tally) -> None:
    """What a refusal must be: exit code 2, one line, short, without control characters, naming the file or the flag."""
    if end.code is None or (tally.findings and tally.findings[-1].case == case.number):
        return
    message = end.stderr.strip().rpartition("\n")[2]
    if end.code == 1 and "run-failed" not in end.stdout and "training failed" not in end.stdout:
        tally.find(Kind.WRONG, case.number, f"{case.what}: exit code 1: {message[:300]}")
    if end.code in (2, 7):
        if not re.match(rf"mlcd: (.*job\.yaml|-|search\.strategy: |{_LACKS})", message):
            tally.find(Kind.WRONG, case.number, f"{case.what}: names no file: {message[:300]!r}")
        if len(end.stderr) > MOST_MESSAGE_CHARACTERS or end.stderr.count("\n") != 1:
            tally.find(Kind.WRONG, case.number, f"{case.what}: {len(end.stderr):,} characters: {message[:300]!r}")
    if odd := odd_characters(end.stdout + end.stderr):
        tally.find(Kind.WRONG, case.number, f"{case.what}: prints {odd!r}: {message[:300]!r}")
    if "Warning" in end.stderr:
        tally.find(Kind.WRONG, case.number, f"{case.what}: a warning of Python: {end.stderr[:300]!r}")
    if case.calls[0][-1] == "json" and end.code == 0 and len(case.calls) == 1:  # type: ignore[index]  # a list
        try:
            json.loads(end.stdout)
        except ValueError as error:
            tally.find(Kind.WRONG, case.number, f"{case.what}: prints no JSON: {error}")


def odd_characters(text: str, *, colours: bool = False) -> list[str]:
    """Characters that a terminal may obey; `colours` allows mlcd's own."""
    if colours:
        text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return sorted({character for character in text if not character.isprintable() and character != "\n"})


# ---- files


def _made(chance: random.Random, command: str, base: Fields) -> tuple[str, bytes]:
    """What was done, and the job file."""
    fields = _copied(base)
    way = chance.choices(("values", "extremes", "structure", "bytes", "yaml"), (30, 30, 15, 15, 10))[0]
    if way == "values":
        return _with_values(chance, command, fields)
    if way == "extremes":
        table = EXTREMES[command]
        chosen = chance.sample(sorted(table), min(len(table), chance.choice((1, 1, 2, 3, 5, 8))))
        for path in chosen:
            _put(fields, path, _strategy(chance, command) if path == "search.strategy" else chance.choice(table[path]))
        return f"extremes {', '.join(f'{path}={_get(fields, path)}' for path in chosen)}"[:400], _text(fields).encode()
    if way == "structure":
        return _restructured(chance, command, fields)
    text = _text(fields)
    if way == "bytes":
        return _with_bytes(chance, text)
    return _with_yaml(chance, text)


def _strategy(chance: random.Random, command: str) -> str:
    """One of the command's strategies, often with options of its own."""
    from mlcd.options import options_of  # noqa: PLC0415 - imported by warm_up
    from mlcd.schedulers.registry import SCHEDULERS  # noqa: PLC0415
    from mlcd.search.registry import SERVING, STRATEGIES, strategy_class  # noqa: PLC0415

    if command == "serverless":
        return chance.choice(sorted(SCHEDULERS))
    name = chance.choice(sorted({**STRATEGIES, **(SERVING if command == "serve" else {})}))
    options = options_of(strategy_class(name, serving=command == "serve"))
    chosen = chance.sample(options, min(len(options), chance.choice((0, 1, 1, 2, 4))))
    values = [(option.name, chance.choice(_OPTION_VALUES)) for option in chosen]
    return name + (":" if values else "") + ",".join(f"{option}={value}" for option, value in values)


def _with_values(chance: random.Random, command: str, fields: Fields) -> tuple[str, bytes]:
    places = _places(command)
    told = []
    for path in chance.sample(places, chance.choice((1, 1, 1, 2, 3))):
        value = chance.choice(_NUMBERS if chance.random() < 0.5 else _TEXTS)
        _put(fields, path, value)
        told.append(f"{path}={value[:60]!r}")
    return f"values {', '.join(told)}", _text(fields).encode("utf-8", "surrogatepass")


def _restructured(chance: random.Random, command: str, fields: Fields) -> tuple[str, bytes]:
    told = []
    for _ in range(chance.choice((1, 1, 2, 4))):
        path = chance.choice([*_paths(fields), *_places(command)])
        edit = chance.choice(("delete", "list", "scalar", "mapping", "rename", "move", "many", "twice", "null", "deep"))
        told.append(f"{edit} {path}")
        value = _get(fields, path)
        if edit == "delete":
            _put(fields, path, None)
        elif edit == "list":
            _put(fields, path, f"[{'x' if isinstance(value, dict | None) else value}]")
        elif edit == "scalar":
            _put(fields, path, chance.choice(("5", "x", "true", "''")))
        elif edit == "mapping":
            _put(fields, path, {"a": "1", "b": {"c": "2"}})
        elif edit in ("rename", "move"):
            _put(fields, path, None)
            name = path.rpartition(".")[2]
            letters = list(name)
            chance.shuffle(letters)
            _put(
                fields,
                "".join(letters) if edit == "rename" else f"{chance.choice(('goal', 'job', 'search'))}.{name}",
                value or "1",
            )
        elif edit == "many":
            _put(fields, path, {f"k{n}": "1" for n in range(chance.choice((50, 5000)))})
        elif edit == "twice":
            fields[f"{path.partition('.')[0]} "] = "1"
        elif edit == "deep":
            inner: Fields | str = "1"
            for _ in range(chance.choice((15, 25, 200))):
                inner = {"a": inner}
            _put(fields, path, inner)
        else:
            _put(fields, path, "")
    return f"structure {', '.join(told)}", _text(fields).encode("utf-8", "surrogatepass")


def _with_bytes(chance: random.Random, text: str) -> tuple[str, bytes]:
    edits: dict[str, Callable[[bytes], bytes]] = {
        "utf-16": lambda _: text.encode("utf-16"),
        "utf-32": lambda _: text.encode("utf-32"),
        "latin-1": lambda data: data + "# \xe9".encode("latin-1"),
        "BOM": lambda data: b"\xef\xbb\xbf" + data,
        "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
        "CR": lambda data: data.replace(b"\n", b"\r"),
        "tabs": lambda data: data.replace(b"  ", b"\t"),
        "no line ends": lambda data: data.replace(b"\n", b" "),
        "empty": lambda _: b"",
        "NUL": lambda data: data.replace(b"t", b"\0", 1),
        "escape": lambda data: data.replace(b": ", b": \x1b[31m", 2),
        "C1": lambda data: data.replace(b": ", ": \x9b31m".encode(), 2),
        "separator": lambda data: data.replace(b": ", ": \u2028".encode(), 2),
        "doubled": lambda data: data + data,
        "truncated": lambda data: data[: chance.randrange(len(data))],
        "padded": lambda data: data + b"\n" * chance.choice((1000, 300_000)),
        "spaces": lambda data: data + b" " * 300_000,
        "binary": lambda _: chance.randbytes(chance.choice((1, 20, 5000))),
    }
    data = text.encode()
    if chance.random() < 0.6:
        name = chance.choice(sorted(edits))
        return f"bytes {name}", edits[name](data)
    return "bytes changed", _changed(chance, bytearray(data))


def _changed(chance: random.Random, changed: bytearray) -> bytes:
    """Some bytes replaced, inserted and removed."""
    for _ in range(chance.choice((1, 2, 5, 20, 100))):
        at = chance.randrange(len(changed))
        kind = chance.randrange(3)
        if kind == 0:
            changed[at] = chance.randrange(256)
        elif kind == 1:
            changed.insert(at, chance.choice(b"\0\t\n\r\x1b:-[]{}#&*!|>'\"%@`,? \xff\xc2\xed"))
        elif len(changed) > 1:
            del changed[at]
    return bytes(changed)


def _with_yaml(chance: random.Random, text: str) -> tuple[str, bytes]:
    tricks = {
        "bomb": _BOMB + text,
        "bomb below": text + _BOMB,
        "merge": text + "x: &m {a: 1}\ny:\n  <<: *m\n",
        "tag": text + "x: !!python/object/apply:os.system ['true']\n",
        "tagged": "!!map\n" + text,
        "complex key": "? [a, b]\n: 1\n" + text,
        "mapping key": "{a: b}: 1\n" + text,
        "no key": ": 1\n" + text,
        "merge of itself": "<<: *x\n" + text,
        "two documents": text + "---\n" + text,
        "ended": text + "...\n" + text,
        "directive": "%FOO bar\n---\n" + text,
        "deep flow": text + "x: " + "[" * chance.choice((19, 100, 5000)) + "\n",
        "deep block": text + "x:\n" + "".join(" " * n + "- \n" for n in range(2, 300)),
        "quotes": text + 'x: "\n',
        "quoted": text + "x: '" + "a\n" * 1000,
        "long key": "k" * 2000 + ": 1\n" + text,
        "block": text + "x: |9\n  a\n",
        "anchor": text + "x: &" + "a" * 1000 + " 1\n",
        "alias first": text + "x: *nothing\n",
        "json": json.dumps({"name": "x", "goal": {"minimize": "time"}}),
        "list": "- a\n- b\n",
        "scalar": "just text\n",
        "comment": "# nothing\n",
        "number": "5\n",
        **{f"head {number}": head + text for number, head in enumerate(_HEADS)},
    }
    name = chance.choice(sorted(tricks))
    return f"yaml {name}", tricks[name].encode()


# ---- fields


def _places(command: str) -> list[str]:
    """Every field that a job file of this kind may have, dotted."""
    from mlcd.spec.functions import serverless_record  # noqa: PLC0415 - imported by warm_up
    from mlcd.spec.parse import train_record  # noqa: PLC0415
    from mlcd.spec.serving import model_record, server_record  # noqa: PLC0415

    tables: dict[str, Callable[[], Iterable[str]]] = {
        "train": lambda: train_record().places(),
        "serve": lambda: (*model_record(None).places(), *server_record(None).places()),
        "serverless": lambda: serverless_record().places(),
    }
    goal = ["goal.budget", "goal.deadline", "goal.minimize"]
    serving = ["goal.slo", "goal.rate", "goal.maximize", "resources.prices.x", "sizes.batch"]
    return sorted({*tables[command](), *goal, *(serving if command == "serve" else ())})


def _copied(fields: Fields) -> Fields:
    return {name: _copied(value) if isinstance(value, dict) else value for name, value in fields.items()}


def _paths(fields: Fields, prefix: str = "") -> list[str]:
    found = []
    for name, value in fields.items():
        found.append(prefix + name)
        if isinstance(value, dict):
            found += _paths(value, f"{prefix}{name}.")
    return found


def _get(fields: Fields, path: str) -> "Fields | str | None":
    name, _, below = path.partition(".")
    value = fields.get(name)
    if not below:
        return value
    return _get(value, below) if isinstance(value, dict) else None


def _put(fields: Fields, path: str, value: "Fields | str | None") -> None:
    name, _, below = path.partition(".")
    if below:
        section = fields.get(name)
        if not isinstance(section, dict):
            section = fields[name] = {}
        _put(section, below, value)
    elif value is None:
        fields.pop(name, None)
    else:
        fields[name] = value


def _text(fields: Fields, indent: int = 0) -> str:
    lines = []
    for name, value in fields.items():
        if isinstance(value, dict):
            lines.append(f"{' ' * indent}{name}:\n{_text(value, indent + 2)}")
        else:
            lines.append(f"{' ' * indent}{name}: {value}\n")
    return "".join(lines)


def write_model(path: Path) -> None:
    """A small ONNX model with an open batch axis."""
    import numpy as np  # noqa: PLC0415 - only this attack needs a model
    from onnx import TensorProto, helper, numpy_helper  # noqa: PLC0415

    weights = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


ATTACKS = (Attack(name="job-files", what="wrong, hostile and extreme job files", count=10_000, run=_attack),)
