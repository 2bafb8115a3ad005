"""Scripts and folders of strangers under `mlcd init`: deep, torn and odd texts, names that shells obey, links.

Beside what `judge` finds, these are defects: a control character on the terminal, a file outside the folder that was
written, a job file that is no job or whose command is not the script's, an edit that spoils a script.
"""

import ast
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import yaml

from attacks.attack import Attack, Ended, Kind, Tally, judge
from attacks.forked import Case, ended, quiet_env, warm_up
from attacks.job_files import odd_characters

TORCH = """import torch
from torch.utils.data import DataLoader
loader = DataLoader(data, batch_size=16, num_workers=2)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for a, b in loader:
        loss = ((model(a) - b) ** 2).mean()
        loss.backward()
        optimizer.step()
torch.save(model.state_dict(), "model.pt")
"""
TRAINER = """from transformers import Trainer, TrainingArguments
trainer = Trainer(model, TrainingArguments("out", per_device_train_batch_size=8), train_dataset=data)
trainer.train()
"""
KERAS = """import keras
model.fit(x, y, batch_size=32, epochs=2)
model.save("model.keras")
"""
_DEEP = ("-", "(", "[", "lambda:", "not ", "1+", "a.", "f(", "{1:", "await ", "*")
_ODD = (
    "\x0c", "\u2028", "\x85", "\x1c", "\x0b", "\r", "\r\n", "\x1b]52;c;QUFB\x07", "\u202e", "\ufeff",
    "\t", "é", "'''", "\\",
    "# -*- coding: rot13 -*-", "\0",
)  # fmt: skip
_NAMES = (
    "train.py", "main.py", "-c.py", "tr ain.py", "$(touch pwned).py", "a;b.py", "train\nrun: x.py", "a #b.py",
    "a: b.py",
    "\x1b]0;x\x07.py", "'.py", '".py', "&x.py", "*.py", "{a}.py", "%s.py", "é.py", "\u202e.py",
    "`id`.py", "a" * 240 + ".py",
)  # fmt: skip
_TEMPLATES = ("pytorch", "huggingface", "lightning", "tensorflow", "aws", "slurm", "kubernetes", "simulated")
OUTSIDE = "outside"


def _attack(count: int, seed: int, folder: Path) -> Tally:
    warm_up()
    tally = Tally()
    env = quiet_env(folder)
    for case, end in ended(_cases(count, seed, folder, env)):
        judge(end, tally, case.number, case.what)
        _check(case, end, tally)
        shutil.rmtree(case.folder.parent, ignore_errors=True)
    return tally


def _cases(count: int, seed: int, folder: Path, env: dict[str, str]) -> Iterator[Case]:
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")
        work = folder / str(number) / "work"
        work.mkdir(parents=True)
        what = []
        for _ in range(chance.choice((1, 1, 2, 3))):
            name, (way, text) = chance.choice(_NAMES), _script(chance)
            what.append(f"{way} in {name[:40]!r}")
            (work / name).write_bytes(text)
        for name in ("job.yaml", "train.py.orig", "train.py"):
            if chance.random() < 0.15 and not os.path.lexists(work / name):
                what.append(f"link {name}")
                (work / name).symlink_to(chance.choice((f"../{OUTSIDE}", "/dev/zero", name, "../nowhere/x")))
        arguments = ["init", "-t", chance.choice(_TEMPLATES)]
        arguments += ["--edit"] if chance.random() < 0.5 else []
        arguments += ["-o", "json"] if chance.random() < 0.3 else []
        yield Case(
            number=number,
            what=f"{' '.join(arguments)}: {', '.join(what)}",
            calls=[arguments],
            folder=work,
            env={**env, "MLCD_HOME": str(work.parent / "home")},
        )


def _script(chance: random.Random) -> tuple[str, bytes]:
    """What was done, and the script."""
    text = chance.choice((TORCH, TRAINER, KERAS))
    lines = text.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    way = chance.choice(("plain", "deep", "odd", "odd", "odd line", "cut", "bytes", "ends", "number", "many"))
    match way:
        case "deep":
            mark, times = chance.choice(_DEEP), chance.choice((90, 1_000, 50_000))
            lines.insert(at, f"x = {mark * times}1\n")
        case "odd":
            place = chance.randrange(len(text))
            return way, (text[:place] + chance.choice(_ODD) + text[place:]).encode()
        case "odd line":
            lines.insert(at, f"# {''.join(chance.choices(_ODD[:-1], k=3))}\n")
        case "cut":
            return way, text[: chance.randrange(len(text))].encode()
        case "bytes":
            return way, chance.randbytes(chance.choice((1, 100, 100_000)))
        case "ends":
            return way, text.replace("\n", chance.choice(("\r\n", "\r", "\x0c\n"))).encode()
        case "number":
            wrong = chance.choice(("9" * 4_000, "0x" + "f" * 5_000, "-1", "1e999", "True", "'16'", "None", "16 * (2"))
            return way, text.replace("16", wrong).replace("32", wrong).encode()
        case "many":
            lines *= chance.choice((2, 50, 1_000))
    return way, "".join(lines).encode()


def _check(case: Case, end: Ended, tally: Tally) -> None:
    def wrong(what: str) -> None:
        tally.find(Kind.WRONG, case.number, f"{case.what}: {what}")

    if odd := set(odd_characters(end.stdout + end.stderr)) - {"\t"}:
        wrong(f"prints {sorted(odd)!r}")
    if (case.folder.parent / OUTSIDE).exists() or (case.folder.parent / "nowhere").exists():
        wrong("wrote through a link")
    job = case.folder / "job.yaml"
    if end.code == 0 and job.is_file():
        found = yaml.safe_load(job.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not str(found.get("run", "python")).startswith(("python", "torchrun")):
            wrong(f"the job file runs {found!r:.200}")
    for orig in case.folder.glob("*.orig"):
        script = orig.with_name(orig.name.removesuffix(".orig"))
        if not orig.is_symlink() and not _is_same_program(orig.read_bytes(), script.read_bytes()):
            wrong(f"spoilt {script.name!r}")


def _is_same_program(before: bytes, after: bytes) -> bool:
    """Whether an edited script can still be parsed and still has every constant of the old one."""
    try:
        old, new = (_constants(before), _constants(after))
    except (SyntaxError, ValueError):
        return False
    return old <= new


def _constants(text: bytes) -> set[str]:
    values = (node.value for node in ast.walk(ast.parse(text.decode("utf-8-sig"))) if isinstance(node, ast.Constant))
    return {hex(value) if isinstance(value, int) else repr(value) for value in values}  # not all digits can be printed


ATTACKS = (Attack(name="strangers", what="scripts and folders of strangers under `mlcd init`", count=300, run=_attack),)
