"""Simulated runs under odd limits, locales, folders and disks.

Few descriptors, small files, little memory, no folder for temporary files, a deleted working folder, another encoding,
a home that is full, has no inodes left or becomes read-only, and mlcd that is paused meanwhile. A command may refuse,
with one message; what it began must afterwards be continued by `mlcd resume` in ordinary surroundings, to the
undisturbed answer, to the micro-dollar.
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from attacks.attack import HANG_SECONDS, Attack, Ended, Kind, Tally, judge
from attacks.forked import enter, quiet_env, warm_up
from attacks.job_files import odd_characters

MOST_PAUSES = 6
MOUNT_KIB = (64, 128, 256, 512, 1024, 2048, 4096)
MOUNT_INODES = (4, 8, 12, 16, 24, 32, 48)
_JOB = """\
name: odd
resources: {infra: sim/aws, instance_type: [c5.xlarge, c5.4xlarge, p2.xlarge, p3.2xlarge]}
num_nodes: 1..10
job: {model: resnet152, samples: 50000, epochs: 2}
goal: {minimize: time, budget: 100 USD}
search: {strategy: random, max_trials: 8}
"""
_COMMANDS = (
    ["train", "job.yaml", "-y", "-o", "json"], ["train", "job.yaml", "-y"], ["train", "job.yaml", "--dry-run"],
    ["demo"], ["runs"], ["runs", "-o", "json"], ["show"], ["show", "-o", "json"], ["report", "--out", "r.html"],
    ["check"], ["down", "--dry-run"], ["logs"], ["catalog"], ["init", "--help"], ["resume"], ["runs", "--restore"],
)  # fmt: skip
_LOCALES: tuple[Mapping[str, str], ...] = (
    {"LANG": "C", "LC_ALL": "C"},
    {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"LC_ALL": "no_SUCH.locale"},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1:strict"},
    {"PYTHONIOENCODING": "utf-16"},
    {"PYTHONIOENCODING": "cp437:replace"},
    {"COLUMNS": "1", "LINES": "0"},
    {"COLUMNS": "999999999"},
    {"COLUMNS": "-5", "TERM": "nonsense"},
    {"TZ": "Nowhere/Land"},
    {"TZ": ":/etc/passwd"},
    {"PYTHONWARNINGS": "error"},
    {"PYTHONHASHSEED": "7", "PYTHONOPTIMIZE": "2"},
    {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"},
)


@dataclass(kw_only=True)
class Surroundings:
    """How one command runs. `what` is for the finding."""

    what: str
    env: dict[str, str] = field(default_factory=dict)
    limits: list[tuple[int, int]] = field(default_factory=list)
    umask: int = 0o022
    is_folder_deleted: bool = False
    pauses: int = 0
    mount_options: str = ""
    is_made_read_only: bool = False


def _attack(count: int, seed: int, folder: Path) -> Tally:
    warm_up()
    tally = Tally()
    env = quiet_env(folder)
    base = folder / "base"
    base.mkdir()
    (base / "job.yaml").write_text(_JOB)
    whole = _run(["train", "job.yaml", "-y", "-o", "json"], base, env, Surroundings(what="none"), random.Random(0))
    if whole.code != 0:
        raise RuntimeError(f"the undisturbed run ended with {whole.code}: {whole.stderr}")
    answer = _answer(whole.stdout)
    for case in range(count):
        chance = random.Random(f"surroundings|{seed}|{case}")
        place = folder / "case"
        place.mkdir()
        (place / "job.yaml").write_text(_JOB)
        try:
            _case(case, chance, place, env, answer, tally)
        finally:
            _unmounted(place / "home")
            shutil.rmtree(place, ignore_errors=True)
    return tally


def _case(case: int, chance: random.Random, place: Path, env: Mapping[str, str], answer: object, tally: Tally) -> None:
    how = chance.choice(_KINDS)(chance, place)
    is_mounted = bool(how.mount_options) and _mounted(place / "home", how.mount_options)
    command = list(_COMMANDS[0] if how.is_made_read_only or chance.random() < 0.5 else chance.choice(_COMMANDS))
    ended = _run(command, place, env, how, chance)
    what = f"{how.what}: {' '.join(command)}"
    _judged(ended, tally, case, what)
    if ended.code == 0 and command == list(_COMMANDS[0]) and _answer(ended.stdout) != answer:
        tally.find(Kind.WRONG, case, f"{what}: {_answer(ended.stdout)} in place of {answer}")
    if is_mounted:
        subprocess.run(["mount", "-o", "remount,rw,size=64m,nr_inodes=0", str(place / "home")], check=True)
    plain = Surroundings(what="ordinary again")
    for name in _unfinished(place, env, plain, chance, tally, case, what):
        last = _run(["resume", name, "-o", "json"], place, env, plain, chance)
        _judged(last, tally, case, f"{what}, then resume")
        if last.code != 0:
            tally.find(Kind.WRONG, case, f"{what}, then resume: exit {last.code}: {last.stderr.strip()[-300:]}")
        elif name.startswith("odd-") and _answer(last.stdout) != answer:
            tally.find(Kind.OVERSPEND, case, f"{what}: {_answer(last.stdout)} in place of {answer}")


def _unfinished(
    place: Path, env: Mapping[str, str], plain: Surroundings, chance: random.Random, tally: Tally, case: int, what: str
) -> list[str]:
    listed = _run(["runs", "-o", "json"], place, env, plain, chance)
    _judged(listed, tally, case, f"{what}, then runs")
    if listed.code != 0:
        tally.find(Kind.WRONG, case, f"{what}, then runs: exit {listed.code}: {listed.stderr.strip()[-300:]}")
        return []
    rows = json.loads(listed.stdout)["runs"]
    for row in rows:
        if row["damage"]:
            tally.find(Kind.WRONG, case, f"{what}: {row['damage']}")
    return [row["run_id"] for row in rows if row["status"] == "running" and not row["damage"]]


def _judged(ended: Ended, tally: Tally, case: int, what: str) -> None:
    judge(ended, tally, case, what)
    if odd := odd_characters(ended.stdout + ended.stderr):
        tally.find(Kind.WRONG, case, f"{what}: prints {odd!r}")


def _answer(text: str) -> object:
    """What a run's JSON says; the text's beginning where it is not JSON."""
    try:
        shown = json.loads(text)
    except ValueError:
        return text[:300]
    return shown["status"], shown["choice"], shown["receipt"]["total_usd"], len(shown["trials"])


def _run(command: list[str], place: Path, env: Mapping[str, str], how: Surroundings, chance: random.Random) -> Ended:
    """The command in a process of its own, that is paused now and then."""
    began = time.monotonic()
    arguments = [str(place / word) if how.is_folder_deleted and word == "job.yaml" else word for word in command]
    everything = {**env, "MLCD_HOME": str(place / "home"), **how.env}
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        _become(arguments, place, everything, how)
    code, peak = _waited(pid, how, place, chance, began + HANG_SECONDS)
    encoding = how.env.get("PYTHONIOENCODING", "utf-8").partition(":")[0]
    texts = [(place / name).read_bytes().decode(encoding, errors="replace") for name in ("stdout", "stderr")]
    return Ended(code=code, stdout=texts[0], stderr=texts[1], seconds=time.monotonic() - began, peak_mib=peak)


def _become(arguments: list[str], place: Path, env: Mapping[str, str], how: Surroundings) -> NoReturn:
    """Run the command in this process, a child of fork, and end; another Python where that has to begin differently."""
    code = 1
    try:
        enter(place, env)
        os.umask(how.umask)
        if how.is_folder_deleted:
            (place / "gone").mkdir()
            os.chdir(place / "gone")
            (place / "gone").rmdir()
        if how.env:
            program = "from mlcd.cli.main import main; main()"
            os.execv(sys.executable, [sys.executable, "-c", program, *arguments])
        from mlcd.cli.main import run  # noqa: PLC0415 - imported by warm_up

        for limit, value in how.limits:
            resource.setrlimit(limit, (value, resource.getrlimit(limit)[1]))
        code = run(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # a child of fork must never return
        traceback.print_exc()
    finally:
        os._exit(code)


def _waited(
    process: int, how: Surroundings, place: Path, chance: random.Random, until: float
) -> tuple[int | None, float]:
    next_pause, pauses = time.monotonic() + chance.uniform(0.1, 1.0), how.pauses
    read_only_at = time.monotonic() + chance.uniform(0.3, 2.0) if how.is_made_read_only else float("inf")
    while True:
        done, status, usage = os.wait4(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), usage.ru_maxrss / 1024
        now = time.monotonic()
        if now > until:
            os.killpg(process, signal.SIGKILL)
            os.wait4(process, 0)
            return None, 0.0
        if pauses and now > next_pause:
            os.kill(process, signal.SIGSTOP)
            time.sleep(chance.uniform(0.01, 0.5))
            os.kill(process, signal.SIGCONT)
            next_pause, pauses = now + chance.uniform(0.1, 0.6), pauses - 1
        if now > read_only_at:
            read_only_at = float("inf")
            subprocess.run(["mount", "-o", "remount,ro", str(place / "home")], check=False, capture_output=True)
        time.sleep(0.01)


def _few_descriptors(chance: random.Random, _: Path) -> Surroundings:
    value = chance.randint(6, 40)
    return Surroundings(what=f"{value} descriptors", limits=[(resource.RLIMIT_NOFILE, value)])


def _small_files(chance: random.Random, _: Path) -> Surroundings:
    value = chance.choice((0, 1, 100, 4096, 20_000, 60_000, 100_000, 150_000, 300_000))
    return Surroundings(what=f"files of {value} bytes", limits=[(resource.RLIMIT_FSIZE, value)])


def _little_memory(chance: random.Random, _: Path) -> Surroundings:
    value = chance.choice((24, 32, 48, 64, 96, 128)) * 2**20
    return Surroundings(what=f"{value >> 20} MiB of data", limits=[(resource.RLIMIT_DATA, value)])


def _little_stack(chance: random.Random, _: Path) -> Surroundings:
    value = chance.choice((128, 256, 512)) * 1024
    return Surroundings(what=f"{value >> 10} KiB of stack", limits=[(resource.RLIMIT_STACK, value)])


def _locale(chance: random.Random, _: Path) -> Surroundings:
    env = dict(chance.choice(_LOCALES))
    return Surroundings(what=f"{env}", env=env)


def _folders(chance: random.Random, place: Path) -> Surroundings:
    (place / "file").write_text("")
    name = chance.choice(("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"))
    value = chance.choice(("", "/nowhere", str(place / "file"), "relative", "/proc", "x" * 5000, "~", "/dev/null", "."))
    return Surroundings(what=f"{name}={value[:20]!r}", env={name: value})


def _home(chance: random.Random, place: Path) -> Surroundings:
    (place / "file").write_text("")
    value = chance.choice((str(place / "file"), "/proc/self", "/dev/null/x", "relative/home", "a\nb", "x" * 5000, "-x"))
    return Surroundings(what=f"MLCD_HOME={value[:20]!r}", env={"MLCD_HOME": value})


def _mask(chance: random.Random, _: Path) -> Surroundings:
    value = chance.choice((0o000, 0o077, 0o777, 0o277))
    return Surroundings(what=f"umask {value:03o}", umask=value)


def _deleted(_: random.Random, __: Path) -> Surroundings:
    return Surroundings(what="a deleted working folder", is_folder_deleted=True)


def _paused(chance: random.Random, _: Path) -> Surroundings:
    count = chance.randint(1, MOST_PAUSES)
    return Surroundings(what=f"{count} pauses", pauses=count)


def _small_disk(chance: random.Random, _: Path) -> Surroundings:
    size = chance.choice(MOUNT_KIB)
    return Surroundings(what=f"a disk of {size} KiB", mount_options=f"size={size}k")


def _few_inodes(chance: random.Random, _: Path) -> Surroundings:
    count = chance.choice(MOUNT_INODES)
    return Surroundings(what=f"{count} inodes", mount_options=f"nr_inodes={count},size=64m")


def _becomes_read_only(_: random.Random, __: Path) -> Surroundings:
    return Surroundings(what="a disk that becomes read-only", mount_options="size=64m", is_made_read_only=True)


_KINDS: tuple[Callable[[random.Random, Path], Surroundings], ...] = (
    _few_descriptors, _small_files, _little_memory, _little_stack, _locale, _folders, _home, _mask, _deleted, _paused,
    _small_disk, _few_inodes, _becomes_read_only,
)  # fmt: skip


def _mounted(folder: Path, options: str) -> bool:
    """Whether a disk of its own was mounted there: only root may."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _unmounted(folder: Path) -> None:
    if folder.is_mount():
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


ATTACKS = (
    (Attack(name="surroundings", what="runs under odd limits, locales, folders and disks", count=200, run=_attack),)
    if sys.platform == "linux"
    else ()
)
