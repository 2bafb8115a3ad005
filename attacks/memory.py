"""The whole product within 1 GB: the largest spaces, longest runs, largest files and fullest homes that it accepts."""

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attacks.attack import MEMORY_MIB, Attack, Ended, Kind, Tally, judge
from attacks.forked import Case, ended, quiet_env, warm_up
from attacks.job_files import write_model

HANG_SECONDS = 900.0
"""The largest of these take minutes on a busy machine."""
MOST_PAGE_BYTES = 8 * 2**20
_RUNS = 5_000
"""Runs in a full home."""

Calls = list[Sequence[str] | Callable[[], Sequence[str]]]


def _train(
    here: Path, *, resources: str, nodes: str, job: str = "samples: 50000, epochs: 90", search: str = ""
) -> None:
    (here / "job.yaml").write_text(
        f"name: t\nresources: {{infra: sim/aws, {resources}}}\nnum_nodes: {nodes}\n"
        f"job: {{model: resnet152, batch: 4096, {job}}}\ngoal: {{minimize: time}}\nsearch: {{{search}}}\n"
    )


def _serverless(
    here: Path, *, functions: str, epochs: int, strategy: str, memory: str = "[512, 1024, 1769, 3008]"
) -> None:
    (here / "job.yaml").write_text(
        f"name: f\nresources: {{infra: sim/lambda}}\nfunctions: {functions}\nmemory: {memory}\n"
        f"workload: {{model: logistic, target_loss: 1e-300, max_epochs: {epochs}}}\n"
        f"goal: {{minimize: time, budget: 1000000000}}\nsearch: {{strategy: {strategy}}}\n"
    )


def _then(command: str, on: str) -> Calls:
    """Run the job, then everything that reads the run."""
    return [
        [command, "job.yaml", "--on", on],
        lambda: ["show", _run_id()],
        lambda: ["show", _run_id(), "-o", "json"],
        lambda: ["report", _run_id(), "--out", "page.html"],
        ["runs"],
        ["runs", "-o", "json"],
    ]


def _run_id() -> str:
    from mlcd.store.store import Store, home  # noqa: PLC0415 - imported by warm_up

    with Store(home()) as store:
        return store.runs()[0].run_id


def _largest_space(here: Path, _: random.Random) -> Calls:
    _train(here, resources="instance_type: [aws-62]", nodes="1..1600", search="max_trials: 3")
    return _then("train", "sim/aws")


def _dry_run_of_the_largest_space(here: Path, chance: random.Random) -> Calls:
    _train(here, resources="instance_type: [aws-62]", nodes="1..1600", search=f"parallel: {chance.choice((1, 1000))}")
    return [["train", "job.yaml", "--dry-run"], ["train", "job.yaml", "--dry-run", "-o", "json"]]


def _endless_work(here: Path, chance: random.Random) -> Calls:
    epochs = chance.choice(("1", "1e-9", "1e9"))
    _train(
        here,
        resources="instance_type: [c5.xlarge, p2.xlarge]",
        nodes="1..50",
        job=f"samples: 1e18, epochs: {epochs}",
        search="max_trials: 5",
    )
    pictures: Calls = [
        lambda kind=kind: ["report", _run_id(), "--picture", kind, "--out", f"{kind}.svg"]  # type: ignore[misc]
        for kind in ("speed", "money", "tradeoff")
    ]
    return [["train", "job.yaml"], *pictures, *_then("train", "sim/aws")[1:]]


def _many_trials(here: Path, _: random.Random) -> Calls:
    _train(
        here,
        resources="instance_type: [aws-62]",
        nodes="[1, 2, 4, 8, 16, 32]",
        search="strategy: exhaustive, max_trials: 100000",
    )
    return _then("train", "sim/aws")


def _many_fleets(here: Path, chance: random.Random) -> Calls:
    _serverless(here, functions="1..100000", epochs=2, strategy=chance.choice(("mpc", "static")))
    return _then("serverless", "sim/lambda")


def _many_epochs(here: Path, _: random.Random) -> Calls:
    _serverless(here, functions="[4]", epochs=1500, strategy="static", memory="[1769]")
    return _then("serverless", "sim/lambda")


def _large_serving_space(here: Path, _: random.Random) -> Calls:
    write_model(here / "model.onnx")
    (here / "job.yaml").write_text(
        "name: s\nmodel: model.onnx\nknobs: {batch: 1..4096, threads: 1..1024, replicas: 1..1024}\n"
        "goal: {maximize: requests per dollar}\n"
    )
    return [["serve", "job.yaml", "--dry-run"]]


def _large_files(here: Path, chance: random.Random) -> Calls:
    size = chance.choice((200_000, 262_000, 10_000_000, 500_000_000))
    with (here / "job.yaml").open("wb") as file:
        file.write(b"name: t\n")
        file.truncate(size) if size > 10**6 else file.write(b"a: 1\n" * (size // 5))
    return [["train", "job.yaml", "--dry-run"]]


def _large_catalog(here: Path, chance: random.Random) -> Calls:
    _train(here, resources="instance_type: [c5.xlarge]", nodes="1..5")
    head = "cloud,name,vcpus,memory_gib,network_gbps,usd_per_hour\n"
    rows = 3_000_000 if chance.random() < 0.3 else 60_000
    (here / "own.csv").write_text(head + "".join(f"aws,x{n}.large,4,16,10,0.5\n" for n in range(rows)))
    return [["train", "job.yaml", "--dry-run"], ["catalog", "x1*"], ["catalog", "-o", "json"]]


def _large_table(here: Path, chance: random.Random) -> Calls:
    folder = here / "tables"
    folder.mkdir()
    (folder / "instances.csv").write_text("instance,usd_per_hour\n" + "".join(f"i{n},{n + 1}\n" for n in range(50)))
    rows = chance.choice((100_000, 199_999, 400_000))
    body = "".join(f"i{n % 50},{n // 50 + 1},{n + 1}\n" for n in range(rows))
    (folder / "t.csv").write_text("instance,nodes,seconds\n" + body)
    (here / "job.yaml").write_text(
        "name: t\nresources: {infra: replay/tables}\ngoal: {minimize: time}\n"
        "search: {strategy: random, max_trials: 3}\n"
    )
    return [["train", "job.yaml", "--dry-run"], ["train", "job.yaml"]]


def _full_home(here: Path, _: random.Random) -> Calls:
    _train(here, resources="instance_type: [c5.xlarge, p2.xlarge]", nodes="1..5", search="max_trials: 3")

    def fill() -> Sequence[str]:
        """The same run thousands of times over."""
        from mlcd.store.store import FILE, home  # noqa: PLC0415 - imported by warm_up

        with sqlite3.connect(home() / FILE) as db:
            db.execute("PRAGMA foreign_keys = OFF")
            tables = {
                "runs": "",
                "steps_started": "",
                "steps_ended": "",
                "statuses": "id",
                "findings": "",
                "verdicts": "id",
            }
            for table, key in tables.items():
                columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] not in ("run_id", key)]
                names = ", ".join(columns)
                db.execute(
                    f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {_RUNS})"
                    f" INSERT INTO {table} (run_id, {names}) SELECT run_id || '-' || i, {names} FROM {table}, n"
                )
        return ["runs"]

    return [["train", "job.yaml"], fill, ["runs", "-o", "json"], ["check"], ["show", "t-"], ["train", "job.yaml"]]


_CASES: tuple[Callable[[Path, random.Random], Calls], ...] = (
    _largest_space,
    _dry_run_of_the_largest_space,
    _endless_work,
    _many_trials,
    _many_fleets,
    _many_epochs,
    _large_serving_space,
    _large_files,
    _large_catalog,
    _large_table,
    _full_home,
)


def _attack(count: int, seed: int, folder: Path) -> Tally:
    warm_up()
    tally = Tally()
    for case, end in ended(_cases(count, seed, folder), seconds=HANG_SECONDS, mib=MEMORY_MIB):
        judge(end, tally, case.number, case.what)
        _check(case, end, tally)
        shutil.rmtree(case.folder, ignore_errors=True)
    return tally


def _cases(count: int, seed: int, folder: Path) -> Iterator[Case]:
    env = quiet_env(folder)
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        make = _CASES[number % len(_CASES)]
        here = folder / f"case-{number}"
        here.mkdir()
        calls = make(here, chance)
        own = {"MLCD_CATALOG": "own.csv"} if (here / "own.csv").exists() else {}
        yield Case(
            number=number,
            what=make.__name__.strip("_").replace("_", " "),
            calls=calls,
            folder=here,
            env={**env, "MLCD_HOME": str(here / "home"), **own},
        )


def _check(case: Case, end: Ended, tally: Tally) -> None:
    """Nothing fails but for a limit that is named; pages and pictures are small, whatever ran."""
    if end.code == 1 and not (tally.findings and tally.findings[-1].case == case.number):
        tally.find(Kind.WRONG, case.number, f"{case.what}: exit code 1: {end.stderr.strip()[-300:]}")
    for path in (*case.folder.glob("*.html"), *case.folder.glob("*.svg")):
        if path.stat().st_size > MOST_PAGE_BYTES:
            tally.find(Kind.MEMORY, case.number, f"{case.what}: {path.name} has {path.stat().st_size:,} bytes")


ATTACKS = (Attack(name="memory", what="the largest inputs that are accepted, within 1 GB", count=44, run=_attack),)
