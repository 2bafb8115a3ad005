"""Jobs that misbehave, each run for real on this machine: a trial and, where it gets that far, the training.

A job here is the user's own script, so it may do whatever the user may; what it must not do is break mlcd's books, stay
behind, make mlcd hand a file of this machine to the next nodes, or keep a run from being resumed. On nodes elsewhere
the same files arrive by rsync: what can be read here can be read there.
"""

import json
import os
import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from attacks.attack import Attack, Ended, Kind, Tally, judge, mlcd

MEMORY_MIB = 400
AT_ONCE = 2
SECRET = "the-content-of-a-private-file"
TRIAL = "{minutes: 0.02, watchdog_minutes: 0.05, precision: 0.5, retries: 0}"
BUDGET_USD = 0.6
"""Pays for a minute: a training whose job never ends is stopped then."""
END_SECONDS = 5.0
"""How long after mlcd's end its job's processes may still be seen: they have got their SIGKILL."""

PRELUDE = """
import json, os, signal, subprocess, sys, time
from pathlib import Path

progress, stop = Path(os.environ["MLCD_PROGRESS_FILE"]), Path(os.environ["MLCD_STOP_FILE"])
lease, checkpoints = progress.parent, Path(os.environ["MLCD_CHECKPOINT_DIR"])
node, secret, mark = lease / "node-0", Path(os.environ["ATTACK_SECRET"]), os.environ["ATTACK_MARK"]
after = float(os.environ["ATTACK_AFTER"])
Path(os.environ["ATTACK_BEGAN"]).touch()
Path("model.json").write_text("{}")
done = max([int(p.name[5:]) for p in checkpoints.glob("step-*") if p.name[5:].isdigit()], default=0)


def raw(text, path=progress):
    with open(path, "ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def line(**fields):
    raw(json.dumps({"time": time.time(), **fields}) + "\\n")


def put(path, content=None, *, fifo=False, folder=False, link=None, size=None):
    "Replace what is at a path."
    subprocess.run(["rm", "-rf", str(path)])
    path.parent.mkdir(parents=True, exist_ok=True)
    if fifo:
        os.mkfifo(path)
    elif folder:
        path.mkdir()
    elif link is not None:
        path.symlink_to(link)
    elif size is not None:
        with open(path, "wb") as file:
            file.truncate(size)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def checkpoint(samples=None, **mark):
    folder = checkpoints / f"step-{done if samples is None else samples}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights").write_text("weights")
    put(folder / "mlcd.json", **mark) if mark else put(folder / "mlcd.json", json.dumps({"samples": done}))
    return folder


def train(seconds=20.0, save=True):
    "Behave, until the work is done or mlcd asks for the end."
    global done
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.03)
        done += 20
        line(samples=done)
        print("step", done, flush=True)
        if done >= 1000 or os.path.lexists(stop):
            if save:
                checkpoint()
            sys.exit(0)


"""


@dataclass(frozen=True, kw_only=True)
class HostileJob:
    """A script after PRELUDE.

    names     what the user must be told: part of a failure's message or a warning; "" where nothing is wrong
    progress  the job file's rule, if it is not mlcd.steps'
    outputs   of the job file
    """

    name: str
    script: str
    names: str = ""
    progress: str = ""
    outputs: str = "model.json"


def _progress_jobs() -> Iterator[HostileJob]:
    late = "train(after)\n{}\ntrain()"
    metric = '{"time": 1, "samples": 500, "metrics": {"m": 1}}\n'
    norms = "noise=dict(workers=1, batch=1, before=1, now=1, dot=-9)"
    noise = f"[line(samples=9000 + i, {norms}) for i in range(20)]"
    for name, code, names in (
        ("null", "raw('null\\n')", "progress.jsonl: line"),
        ("list", "raw('[1]\\n')", "should be a mapping, is a list"),
        ("NaN", 'raw(\'{"time": NaN, "samples": NaN}\\n\')', "has NaN in place of a number"),
        ("infinite samples", "line(samples=float('inf'))", "has Infinity in place of a number"),
        ("400 digits", "line(samples=int('9' * 400))", "an integer of 400 digits"),
        ("negative samples", "line(samples=-5)", "samples should be between"),
        ("too many samples", "line(samples=10**19)", "samples should be between"),
        ("a string", "line(samples='many')", "samples should be a number"),
        ("no time", "raw('{\"samples\": 5}\\n')", "time is missing"),
        ("deep", "raw('[' * 60000 + '\\n')", "nested deeper"),
        ("escaped quotes", "raw(chr(34) + (chr(92) + chr(34)) * 30000 + '\\n' * 5 + 'x\\n' * 4)", "is not JSON"),
        ("garbage", "raw('garbage\\n' * 10)", "is not JSON"),
        ("a line of 100 MB", "for _ in range(100): raw(b'x' * 1_000_000)\nraw('\\n')", "is not JSON"),
        ("backwards", "line(samples=900); done = 0", "samples went back"),
        ("a FIFO", "put(progress, fifo=True); time.sleep(9)", "is a FIFO"),
        ("a folder", "put(progress, folder=True); time.sleep(9)", "is a folder"),
        ("a link", "put(progress, link=secret); time.sleep(9)", "is a link"),
        ("a device", "put(progress, link='/dev/zero'); time.sleep(9)", "is a link"),
        ("1 TB of holes", "put(progress, size=2**40); time.sleep(0.2)", ""),
        ("shorter", "put(progress, '')", "became shorter"),
        ("a million metrics", f"for _ in range(100): raw({metric!r} * 10_000)", ""),
        ("10,000 metrics", "line(samples=done, metrics={str(i): 1 for i in range(2000)})", "has 2,000 metrics"),
        ("a metric without end", "line(samples=done, metrics={'m': 1e308})", "metrics: m should be between"),
        ("impossible noise", f"{noise}; os._exit(0)", ""),
        ("10,000 warnings", "[line(warning='\\x1b]0;owned\\x07 %d' % i) for i in range(10000)]", ""),
    ):
        yield HostileJob(name=f"progress.jsonl: {name}", script=late.format(code), names=names)
    yield HostileJob(
        name="progress.jsonl: times of another century",
        script="for i, t in enumerate([1e15, -1e15, 0, 1e300]):\n"
        "    raw(json.dumps({'time': t, 'samples': 20 * i}) + '\\n')\ntrain()",
    )
    yield HostileJob(
        name="progress.jsonl: hardly a sample",
        script="for i in range(400):\n    line(samples=i * 1e-300); time.sleep(0.03)",
        names="samples should be 0 or at least",
    )
    yield HostileJob(
        name="progress.jsonl: very few samples",
        script="for i in range(400):\n    line(samples=i * 1e-6); time.sleep(0.03)\n    if stop.exists(): break",
    )
    yield HostileJob(
        name="progress.jsonl: 10,000 lines a second",
        script="for i in range(1000):\n"
        "    raw(''.join(json.dumps({'time': time.time(), 'samples': i + j / 200}) + '\\n' for j in range(200)))\n"
        "    time.sleep(0.02)\n    if stop.exists(): break",
    )


def _exit_jobs() -> Iterator[HostileJob]:
    path = "node / 'exit.json'"
    for name, code, names in (
        ("null", f"put({path}, 'null')", "exit.json: should be a mapping"),
        ("NaN", f"put({path}, '{{\"code\": NaN}}')", "exit.json: has NaN"),
        ("a code of 400 digits", f"put({path}, '{{\"code\": ' + '9' * 400 + '}}')", "exit.json: has an integer"),
        ("a string", f'put({path}, \'{{"code": "0"}}\')', "exit.json: code should be"),
        ("garbage", f"put({path}, '{{\"co')", ""),
        ("a FIFO", f"put({path}, fifo=True)", "exit.json: should be a regular file"),
        ("a folder", f"put({path}, folder=True)", "exit.json: should be a regular file"),
        ("a link", f"put({path}, link=secret)", "exit.json: should be a regular file"),
        ("1 TB", f"put({path}, size=2**40)", "exit.json: is larger than"),
        ("forged", f"put({path}, json.dumps(dict(code=1, message='\\x1b[2J' + 'owned')))", "owned"),
        # refused, or replaced by the agent before mlcd looks
        ("in a linked folder", "os.rename(node, lease / 'old'); put(node, link=secret.parent)", ""),
    ):
        yield HostileJob(name=f"exit.json: {name}", script=f"train(after)\n{code}\ntrain()", names=names)


def _checkpoint_jobs() -> Iterator[HostileJob]:
    for name, mark, names in (
        ("null", "content='null'", "mlcd.json: should be a mapping"),
        ("list", "content='[5]'", "mlcd.json: should be a mapping"),
        ("NaN", "content='{\"samples\": NaN}'", "mlcd.json: has NaN"),
        ("Infinity", "content='{\"samples\": Infinity}'", "mlcd.json: has Infinity"),
        ("400 digits", "content='{\"samples\": ' + '9' * 400 + '}'", "mlcd.json: has an integer"),
        ("negative", "content='{\"samples\": -1}'", "mlcd.json: samples should be"),
        ("half", "content='{\"samp'", "mlcd.json: is not JSON"),
        ("deep", "content='[' * 60000", "mlcd.json: is nested deeper"),
        ("FIFO", "fifo=True", "mlcd.json: should be a regular file"),
        ("folder", "folder=True", "mlcd.json: should be a regular file"),
        ("link", "link=secret", "mlcd.json: should be a regular file"),
        ("1 TB", "size=2**40", "mlcd.json: is larger than"),
    ):
        yield HostileJob(name=f"checkpoint: {name}", script=f"checkpoint(400, {mark})\ntrain(save=False)", names=names)
    for name, code, names in (
        ("with a linked file", "(checkpoint(400) / 'stolen').symlink_to(secret)", "stolen: is a link out of"),
        ("with a linked folder", "(checkpoint(400) / 'stolen').symlink_to(secret.parent)", "stolen: is a link out of"),
        ("that is a link", "put(checkpoints, link=secret.parent)", "is reached through a link"),
        ("with a FIFO", "os.mkfifo(checkpoint(400) / 'fifo')", "is neither a file nor a folder"),
        ("1 TB of holes", "put(checkpoint(400) / 'weights', size=2**40)", ""),
        (
            "500 folders deep",
            "os.chdir(checkpoint(400))\nfor _ in range(500): os.mkdir('d'); os.chdir('d')",
            "levels deep",
        ),
        ("5,000 of them", "for i in range(5000): (checkpoints / f'step-{i}').mkdir()", "has more than 1,000"),
    ):
        yield HostileJob(name=f"checkpoint: {name}", script=f"{code}\ntrain(save=False)", names=names)


def _output_jobs() -> Iterator[HostileJob]:
    for name, code, names in (
        ("a link out", "put(Path('model.json'), link=secret)", "the output model.json is not taken"),
        ("a FIFO", "put(Path('model.json'), fifo=True)", "the output model.json is not taken"),
        (
            "a link by two links",
            "os.symlink('.', 'a'); put(Path('model.json'), link='a/../../../../../../secret/key')",
            "",
        ),
    ):
        yield HostileJob(name=f"output: {name}", script=f"{code}\ntrain()", names=names)
    yield HostileJob(
        name="output: in a linked folder",
        script="os.symlink(secret.parent, 'out')\ntrain()",
        outputs="out/key",
        names="the output out/key is not taken",
    )
    yield HostileJob(
        name="output: in a linked workdir",
        script="os.rename(lease / 'workdir', lease / 'old'); put(lease / 'workdir', link=secret.parent)\ntrain()",
        outputs="key",
        names="the output key is not taken",
    )


def _log_jobs() -> Iterator[HostileJob]:
    pattern = "{pattern: 'step (?P<steps>[0-9]+)'}"
    for name, code in (
        ("200 MB", "for _ in range(200): print('y' * 999_999)"),
        ("200 MB in a line", "for _ in range(200): sys.stdout.write('y' * 1_000_000)"),
        ("escapes", "print('\\x1b[2J\\x1b]0;owned\\x07' * 100); sys.exit('\\x1b[31m\\u202eowned')"),
        ("deleted", "os.unlink(node / 'log.txt')"),
        ("replaced by a FIFO", "put(node / 'log.txt', fifo=True)"),
        ("replaced by a link", "put(node / 'log.txt', link=secret); sys.exit(3)"),
        (
            "200 MB of the agent's",
            "for _ in range(200): raw(b'z' * 1_000_000, node / 'agent.txt')\nos.kill(os.getppid(), 9)",
        ),
    ):
        for rule in ("", pattern) if name.startswith("200 MB i") or "FIFO" in name else ("",):
            yield HostileJob(
                name=f"log: {name}{', read by a pattern' if rule else ''}",
                script=f"train(after)\n{code}\ntrain()",
                progress=rule,
            )
    yield HostileJob(
        name="its own progress file: a link",
        script="put(Path('own'), link=secret); train()",
        progress="{file: own}",
        names="own: should be a regular file",
    )


def _process_jobs() -> Iterator[HostileJob]:
    forever = "time.sleep(3600)"
    orphan = "if not os.fork():\n    os.setsid()\n    if not os.fork(): {}\n    os._exit(0)"
    daemon = f"[sys.executable, '-c', 'import time, sys; {forever}', mark]"
    for name, code in (
        ("forks", f"for _ in range(20):\n    if not os.fork(): {forever}"),
        ("leaves a session", f"subprocess.Popen({daemon}, start_new_session=True)"),
        ("leaves a daemon", orphan.format(f"os.execv(sys.executable, {daemon})")),
        ("leaves a daemon without variables", orphan.format(f"os.execve(sys.executable, {daemon}, {{}})")),
        ("ignores SIGTERM", "signal.signal(signal.SIGTERM, signal.SIG_IGN); put(stop, folder=True)"),
        ("closes everything", "os.closerange(0, 1024)"),
        ("kills its agent", "os.kill(os.getppid(), 9)"),
        ("stops its agent", "os.kill(os.getppid(), 19)"),
        ("kills itself", "os.kill(os.getpid(), 9)"),
        ("aborts", "os.abort()"),
        ("exits with 255", "os._exit(255)"),
        ("ends as if done", "os._exit(0)"),
        ("makes stop a link", "put(stop, link=secret.parent / 'made')"),
        ("makes stop a FIFO", "put(stop, fifo=True)"),
        ("deletes the lease", "subprocess.run(['rm', '-rf', str(lease)])"),
        ("deletes its node's folder", "subprocess.run(['rm', '-rf', str(node)]); os._exit(3)"),
        ("makes the lease a link", "os.rename(lease, lease.with_name('old')); lease.symlink_to(secret.parent)"),
        ("tampers with job.json", "put(lease / 'job.json', '[]')"),
        ("takes all modes", "[os.chmod(p, 0) for p in (progress, node, lease / 'workdir', checkpoints)]"),
    ):
        yield HostileJob(name=f"process: {name}", script=f"train(after)\n{code}\ntrain()")


JOBS = (
    *_progress_jobs(),
    *_exit_jobs(),
    *_checkpoint_jobs(),
    *_output_jobs(),
    *_log_jobs(),
    *_process_jobs(),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One hostile job in a folder of its own."""

    number: int
    job: HostileJob
    folder: Path
    after_seconds: float

    @property
    def home(self) -> Path:
        """$MLCD_HOME."""
        return self.folder / "home"

    @property
    def mark(self) -> str:
        """In the variables or the arguments of every process that belongs to it."""
        return f"mlcd-attack-{os.getpid()}-{self.number}"

    def run(self, *arguments: str) -> Ended:
        """Run mlcd with the variables that the script reads."""
        env = {
            "ATTACK_SECRET": str(self.folder / "secret" / "key"),
            "ATTACK_BEGAN": str(self.folder / "began"),
            "ATTACK_MARK": self.mark,
            "ATTACK_AFTER": str(self.after_seconds),
        }
        return mlcd(arguments, home=self.home, cwd=self.folder, env=env)

    def write(self) -> Path:
        """The script, the secret and the job file."""
        (self.folder / "code").mkdir(parents=True)
        (self.folder / "secret").mkdir()
        (self.folder / "secret" / "key").write_text(SECRET)
        (self.folder / "code" / "job.py").write_text(PRELUDE + self.job.script + "\n")
        lines = [
            "name: hostile",
            "workdir: code",
            "resources: {infra: local, instance_type: [local.1], prices: {local.1: 36 USD}}",
            "num_nodes: [1]",
            "run: python job.py",
            "job: {samples: 1000, batch: 10}",
            "checkpoints: true",
            f"outputs: [{self.job.outputs}]",
            f"goal: {{minimize: time, budget: {BUDGET_USD} USD}}",
            f"search: {{noise: 0.02, assurance: 0.99, trial: {TRIAL}}}",
            *([f"progress: {self.job.progress}"] if self.job.progress else []),
        ]
        file = self.folder / "job.yaml"
        file.write_text("\n".join(lines) + "\n")
        return file


def run(count: int, seed: int, folder: Path) -> Tally:
    """Each job once; with a larger count again, at another instant."""
    tally = Tally()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        cases = [_case(number, seed, folder) for number in range(count)]
        for found in pool.map(_attack, cases):
            tally.tried += found.tried
            tally.findings += found.findings
            tally.peak_mib = max(tally.peak_mib, found.peak_mib)
            for outcome, times in found.outcomes.items():
                tally.outcomes[outcome] = tally.outcomes.get(outcome, 0) + times
    return tally


def _case(number: int, seed: int, folder: Path) -> Case:
    after = random.Random(f"{seed}-{number}").uniform(0.2, 0.8)
    # Fewer cases than jobs are spread over all of them.
    job = JOBS[(number * 37 + seed - 1) % len(JOBS)]
    return Case(number=number, job=job, folder=folder / str(number), after_seconds=after)


def _attack(case: Case) -> Tally:
    tally = Tally()
    what = case.job.name
    ended = case.run("train", "-y", str(case.write()))
    judge(ended, tally, case.number, what, most_mib=MEMORY_MIB)
    _end_what_is_left(case, tally, what)
    record = _record(case, tally, what)
    if record is not None and record["status"] in ("running", "interrupted"):
        again = case.run("resume", str(record["run_id"]))
        unjudged = Tally()
        judge(again, unjudged, case.number, f"{what}, resumed", most_mib=MEMORY_MIB)
        tally.findings += unjudged.findings
        _end_what_is_left(case, tally, what)
        record = _record(case, tally, what)
        if record is not None and record["status"] in ("running", "interrupted"):
            tally.find(Kind.WRONG, case.number, f"{what}: cannot be resumed: {again.stderr.strip()[-300:]}")
    _check_books(case, record, ended, tally)
    _check_secret(case, tally)
    return tally


def _record(case: Case, tally: Tally, what: str) -> "dict[str, object] | None":
    """The run as `mlcd show` has it; None where nothing was recorded."""
    try:
        with closing(sqlite3.connect(f"file:{next(case.home.glob('*.sqlite3'))}?mode=ro", uri=True, timeout=10)) as db:
            rows = db.execute("SELECT run_id FROM runs").fetchall()
    except (sqlite3.Error, StopIteration):
        return None
    if not rows:
        return None
    shown = case.run("show", str(rows[0][0]), "-o", "json")
    try:
        found: dict[str, object] = json.loads(shown.stdout)
    except ValueError:
        tally.find(Kind.WRONG, case.number, f"{what}: mlcd show: {shown.stderr.strip()[-300:]}")
        return None
    return found


def _check_books(case: Case, record: "dict[str, object] | None", ended: Ended, tally: Tally) -> None:
    """What was paid for is recorded, and the user was told what was wrong."""
    what = case.job.name
    if record is None:
        tally.find(Kind.WRONG, case.number, f"{what}: no run is recorded: {ended.stderr.strip()[-300:]}")
        return
    trials, training = record["trials"], record["training"]
    assert isinstance(trials, list)
    paid = [float(trial["usd"]) for trial in trials]
    if (case.folder / "began").exists() and not sum(paid):
        tally.find(Kind.WRONG, case.number, f"{what}: its job has run and no trial was charged")
    if sum(paid) + (float(training["usd"]) if isinstance(training, dict) else 0.0) > BUDGET_USD:
        tally.find(Kind.OVERSPEND, case.number, f"{what}: over its budget of ${BUDGET_USD}")
    told = json.dumps(record, ensure_ascii=False) + ended.stderr
    if case.job.names and case.job.names not in told:
        tally.find(Kind.WRONG, case.number, f"{what}: nobody says {case.job.names!r}: {ended.stderr.strip()[-300:]}")
    if "\x1b]0;owned" in ended.stderr + ended.stdout:
        tally.find(Kind.WRONG, case.number, f"{what}: the terminal's title is changed")


def _check_secret(case: Case, tally: Tally) -> None:
    """Neither the outputs nor the run's checkpoint have the file that links led to, nor a link to it."""
    if (case.folder / "secret" / "key").read_text() != SECRET:
        tally.find(Kind.WRONG, case.number, f"{case.job.name}: a file outside was changed")
    if (case.folder / "secret" / "made").exists():  # by way of a link; what the job itself makes there is its own
        tally.find(Kind.WRONG, case.number, f"{case.job.name}: a file was made outside")
    for kept in ("outputs", "checkpoint"):
        for top in case.home.glob(f"work/*/{kept}"):
            for path in (top, *top.rglob("*")):
                if path.is_symlink() and not path.resolve().is_relative_to(top.resolve()):
                    tally.find(Kind.WRONG, case.number, f"{case.job.name}: {path} leads out")
                elif path.is_file() and path.stat().st_size < 10**6 and SECRET in path.read_text(errors="replace"):
                    tally.find(Kind.WRONG, case.number, f"{case.job.name}: {path} has a private file's content")


def _end_what_is_left(case: Case, tally: Tally, what: str) -> None:
    """Find what still runs of the case, and end it."""
    until = time.monotonic() + END_SECONDS
    while (left := _marked(case.mark)) and time.monotonic() < until:
        time.sleep(0.1)
    for pid, command in left.items():
        tally.find(Kind.LEFT_RUNNING, case.number, f"{what}: {command[:100]}")
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _marked(mark: str) -> dict[int, str]:
    """Processes with the mark in their variables or arguments -> their arguments."""
    found, wanted = {}, mark.encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, variables = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:
            continue
        words = {*command.split(b"\0"), *(word.partition(b"=")[2] for word in variables.split(b"\0"))}
        if wanted in words:
            found[int(folder.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


ATTACKS = (
    Attack(
        name="hostile-jobs",
        what="hostile jobs, run for real on this machine",
        count=len(JOBS),
        run=run,
    ),
)
