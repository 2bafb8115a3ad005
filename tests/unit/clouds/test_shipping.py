"""What nodes and functions get of mlcd, imported from exactly what each engine ships, in bare Pythons."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mlcd
from mlcd.clouds import shipping
from mlcd.clouds.nodes import NodeOrder
from mlcd.clouds.shipping import FUNCTIONS, NODES, NeedsPackage, closure, ship
from mlcd.clouds.skypilot.task import SkySettings, make_task
from mlcd.clouds.slurm.engine import Slurm
from mlcd.errors import MlcdError

VERSIONS = ("3.11", "3.12", "3.13")
NODE_VERSIONS = ("3.10", *VERSIONS)
"""SkyPilot's images have Python 3.10 (docs/clouds/skypilot.md); functions get the Python that mlcd runs with."""
TOO_OLD = ("3.8", "3.9")
FRAMEWORKS = {"torch": "torch", "keras": "keras"}
"""Rooms whose framework the job provides."""

PROBE = """
import importlib, json, sys
import mlcd
found = {"": mlcd.__file__}
for name in json.loads(sys.argv[1]):
    try:
        importlib.import_module(name)
        found[name] = "ok"
    except ImportError as error:
        found[name] = f"{type(error).__name__}: {error}"
for name in mlcd.__all__:
    try:
        found[f"mlcd.{name}()"] = "ok" if getattr(mlcd, name) is not None else "None"
    except ImportError as error:
        found[f"mlcd.{name}()"] = f"{type(error).__name__}: {error}"
with open(sys.argv[2], "w") as file:
    json.dump(found, file)
"""


@cache
def interpreter(version: str) -> str | None:
    """A Python of this version; None where this machine has none that runs."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    for python in [*sorted(map(str, pyenv.glob(f"{version}.*/bin/python3"))), *([on_path] if on_path else [])]:
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return python
    return None


def bare(version: str) -> list[str]:
    """The command of a Python without any installed package."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    return [python, "-S"]


def make_order(folder: Path, run: str) -> NodeOrder:
    (folder / "workdir").mkdir(parents=True)
    (folder / "workdir" / "probe.py").write_text(PROBE)
    (folder / "job.json").write_text(json.dumps({"lease_id": "mlcd-a-b", "run": run}))
    return NodeOrder(lease_id="mlcd-a-b", instance="debug", count=1, seconds=60.0, folder=folder)


def run_probe(python: list[str], tree: Path, result: Path) -> str:
    modules = [
        ".".join(("mlcd", *file.relative_to(tree / "mlcd").with_suffix("").parts)).removesuffix(".__init__")
        for file in sorted((tree / "mlcd").rglob("*.py"))
    ]
    assert len(modules) > 20
    return shlex.join([*python, "probe.py", json.dumps(modules), str(result)])


# ---- the tree as each engine delivers it; each returns what a probe of it found


def probe_skypilot(folder: Path, python: list[str]) -> dict[str, str]:
    """Runs the node's command of SkyPilot's task, agent included, with `python3` as the only Python."""
    home, result = folder / "home", folder / "found.json"
    agent = ship(folder / "state")
    lease = home / ".mlcd-leases" / "mlcd-a-b"
    order = make_order(lease, run_probe(["python3"], agent, result))
    task = make_task(order, SkySettings(infra="aws"), agent=agent)
    shutil.copytree(task["file_mounts"]["~/.mlcd-agent"], home / ".mlcd-agent")
    (home / "bin").mkdir()
    (home / "bin" / "python3").write_text(f'#!/bin/sh\nexec {shlex.join(python)} "$@"\n')
    (home / "bin" / "python3").chmod(0o700)
    env = {"HOME": str(home), "PATH": f"{home}/bin:/usr/bin:/bin"}
    env |= {"SKYPILOT_NODE_RANK": "0", "SKYPILOT_NODE_IPS": "127.0.0.1"}
    done = subprocess.run(["bash", "-c", task["run"]], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + (lease / "node-0" / "log.txt").read_text()
    found: dict[str, str] = json.loads(result.read_text())
    assert Path(found[""]).is_relative_to(home / ".mlcd-agent")
    return found


def probe_slurm(folder: Path, python: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Runs the batch script that was submitted; the job has a Python of its own, the agent has mlcd's."""
    lease, result, commands = folder / "it's a lease", folder / "found.json", folder / "bin"
    tree = ship(folder / "only to list the modules")
    order = make_order(lease, run_probe(python, tree, result))
    commands.mkdir()
    for name, script in {
        "sinfo": "echo 'debug*|up|infinite|infinite|1|idle|2|1000|(null)'",
        "sbatch": "echo 17",
        "scontrol": "[ \"$1 $2\" = 'show hostnames' ] && echo n0 || echo 'NodeName=n0 NodeAddr=127.0.0.1'",
        "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; SLURM_PROCID=0 exec "$@"',
    }.items():
        (commands / name).write_text(f"#!/bin/sh\n{script}\n")
        (commands / name).chmod(0o700)
    path = f"{commands}:/usr/bin:/bin"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(Slurm, "_partition", lambda *_: _Partition())
    Slurm({}).start(order)
    env = {"PATH": path, "HOME": str(folder), "SLURM_JOB_NODELIST": "n0"}
    done = subprocess.run(["sh", str(lease / "slurm.sh")], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + (lease / "node-0" / "log.txt").read_text()
    found: dict[str, str] = json.loads(result.read_text())
    assert Path(found[""]).is_relative_to(lease)
    return found


class _Partition:
    most_nodes, max_minutes, gpus = 4, None, 0


def probe_lithops(folder: Path, python: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Lets Lithops pack and unpack what it was told to send; imports it as its worker does: last on the path."""
    pytest.importorskip("lithops", reason="Lithops is missing; pip install 'mlcd[lithops]'")
    from lithops.job.serialize import SerializeIndependent, create_module_data, write_module_data

    from mlcd.clouds.functions.lithops.invoker import Invoker
    from mlcd.clouds.functions.lithops.worker import train_shard

    unpacked, result = folder / "modules", folder / "found.json"

    def send(function: Callable[..., Any], data: list[Any], *, include_modules: list[str], **_: object) -> list[Any]:
        paths = SerializeIndependent([["numpy", True]]).module_paths([function], include_modules, [])
        unpacked.mkdir()
        write_module_data(str(unpacked), create_module_data(paths))
        return []

    invoker = Invoker("localhost", most_calls=1)
    try:
        before = list(sys.path)
        monkeypatch.setattr(invoker, "backend", "aws_lambda")
        monkeypatch.setattr(invoker._executor, "map", send)
        invoker.call(train_shard, [], memory_mb=128, seconds=5)
        assert sys.path == before
    finally:
        monkeypatch.undo()
        invoker.close()
    assert [entry.name for entry in unpacked.iterdir()] == ["mlcd"], "nothing but mlcd is sent"
    (folder / "probe.py").write_text(PROBE)
    env = {"PYTHONPATH": str(unpacked)}
    command = run_probe(python, unpacked, result)
    done = subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(result.read_text())
    return found


# ---- every module, from what was shipped


def check_nodes(found: dict[str, str]) -> None:
    for name, came in found.items():
        room = name.split(".")[1] if name.startswith("mlcd.") else ""
        if room in FRAMEWORKS:
            if came == "ok" and name != f"mlcd.{room}":
                continue  # imported before its package failed
            assert f"mlcd.{room} needs the package {FRAMEWORKS[room]}, which " in came, name
            assert "install it in the job's `setup`" in came
        elif name.endswith("()") and came != "ok":
            assert "a node gets only the part of mlcd" in came, name
        elif name:
            assert came == "ok", name
    assert {f"mlcd.{name}()" for name in ("steps", "checkpoint", "score", "learning_rate", "share_of_batch")} <= {
        name for name, came in found.items() if came == "ok"
    }
    rooms = {"mlcd.platforms.agent", "mlcd.training.steps", "mlcd.torch", "mlcd.keras"}
    assert rooms <= set(found)


@pytest.mark.parametrize("version", NODE_VERSIONS)
def test_skypilot_ships_every_module_that_a_node_needs(version: str, tmp_path: Path) -> None:
    check_nodes(probe_skypilot(tmp_path, bare(version)))


@pytest.mark.parametrize("version", NODE_VERSIONS)
def test_slurm_ships_every_module_that_a_node_needs(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_nodes(probe_slurm(tmp_path, bare(version), monkeypatch))


@pytest.mark.parametrize("version", VERSIONS)
def test_lithops_ships_every_module_that_a_function_needs(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = probe_lithops(tmp_path, bare(version), monkeypatch)
    for name, came in found.items():
        if name.startswith(("mlcd.workloads", "mlcd.clouds.functions.lithops.")):
            assert came in ("ok", "ModuleNotFoundError: No module named 'numpy'"), name
    assert found["mlcd.clouds.functions.lithops.worker"] == "ModuleNotFoundError: No module named 'numpy'"
    assert "a node gets only the part of mlcd" in found["mlcd.Search()"]


def packages_of(*names: str) -> str:
    """The folders with these packages, for a Python path."""
    return os.pathsep.join(sorted({str(Path(__import__(name).__file__ or "").parents[1]) for name in names}))


def test_functions_work_with_what_was_shipped_where_numpy_is_there(tmp_path: Path) -> None:
    tree = ship(tmp_path, FUNCTIONS)
    code = (
        "import mlcd, mlcd.clouds.functions.lithops.worker as worker\n"
        "from mlcd.workloads.model import BUILT_IN, built_in\n"
        "print(mlcd.__file__, *(len(built_in(name).start(0)) for name in BUILT_IN))"
    )
    env = {"PYTHONPATH": f"{tree}{os.pathsep}{packages_of('numpy')}"}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    where, *sizes = done.stdout.split()
    assert Path(where).is_relative_to(tree)
    assert all(int(size) > 0 for size in sizes)


def test_mlcd_torch_works_from_what_was_shipped_where_torch_is_there(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is missing; pip install torch")
    tree = ship(tmp_path)
    code = (
        "import torch, mlcd, mlcd.torch\n"
        "mlcd.torch.init()\n"
        "model = mlcd.torch.parallel(torch.nn.Linear(2, 1))\n"
        "loader = mlcd.torch.loader(torch.utils.data.TensorDataset(torch.zeros(8, 2)), batch_size=4)\n"
        "print(mlcd.torch.__file__, sum(model(rows).shape[0] for (rows,) in mlcd.steps(loader, batch_size=4)))"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MLCD_", "COV"))}
    env["PYTHONPATH"] = str(tree)
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    where, samples = done.stdout.split()
    assert Path(where).is_relative_to(tree)
    assert samples == "8"


@pytest.mark.extra
def test_mlcd_keras_works_from_what_was_shipped_where_keras_is_there(tmp_path: Path) -> None:
    from tests.integration.test_platform_examples import engine_python

    tree = ship(tmp_path)
    code = "import mlcd.keras; print(mlcd.keras.__file__, mlcd.keras.Progress(batch_size=8).params)"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MLCD_", "COV"))}
    env["PYTHONPATH"] = str(tree)
    done = subprocess.run(
        [engine_python("tensorflow"), "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.split()[0]).is_relative_to(tree)


# ---- what was not shipped


def python(tree: Path, code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": os.pathsep.join(map(str, (tree, *path)))}
    return subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "statement",
    ["import mlcd.api", "from mlcd import train", "import mlcd; mlcd.Search", "import mlcd.training.nosuch"],
)
def test_the_error_names_what_was_not_shipped_and_why(statement: str, tmp_path: Path) -> None:
    done = python(ship(tmp_path), statement)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: No module named 'mlcd.")
    assert f"a node gets only the part of mlcd {mlcd.__version__} that jobs need" in last


def test_an_unknown_name_is_still_an_import_error(tmp_path: Path) -> None:
    done = python(ship(tmp_path), "from mlcd import nosuch")
    assert "ImportError: cannot import name 'nosuch' from 'mlcd'" in done.stderr


def install(folder: Path, version: str) -> Path:
    """A package mlcd with two modules that are never shipped."""
    (folder / "mlcd" / "training").mkdir(parents=True)
    for name in ("__init__.py", "training/__init__.py"):
        (folder / "mlcd" / name).write_text("raise SystemExit('the installed one must not replace the shipped one')")
    (folder / "mlcd" / "version.py").write_text(f'"""The version."""\n\n__version__ = "{version}"\n')
    (folder / "mlcd" / "only_here.py").write_text("from mlcd.training import deeper\n")
    (folder / "mlcd" / "training" / "deeper.py").write_text("from mlcd.training.steps import steps\n")
    return folder


def test_an_installed_mlcd_of_the_same_version_completes_what_was_shipped(tmp_path: Path) -> None:
    done = python(
        ship(tmp_path / "tree"),
        "import mlcd.only_here as it; print(it.__file__, it.deeper.steps.__code__.co_filename)",
        install(tmp_path / "site", mlcd.__version__),
    )
    assert done.returncode == 0, done.stderr
    installed, shipped = done.stdout.split()
    assert Path(installed) == tmp_path / "site" / "mlcd" / "only_here.py"
    assert Path(shipped).is_relative_to(tmp_path / "tree")


def test_an_installed_mlcd_of_another_version_is_named_and_not_used(tmp_path: Path) -> None:
    done = python(ship(tmp_path / "tree"), "import mlcd.only_here", install(tmp_path / "site", "0.0.7"))
    assert done.returncode == 1
    assert f"not used, because of another version: mlcd 0.0.7 in {tmp_path / 'site'}" in done.stderr


@pytest.mark.parametrize("version", TOO_OLD)
def test_a_python_that_is_too_old_is_named(version: str, tmp_path: Path) -> None:
    command = [*bare(version), "-c", "import mlcd"]
    env = {"PYTHONPATH": str(ship(tmp_path))}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: mlcd needs Python 3.10 or newer on a node; ")
    assert f"is Python {version}" in last


# ---- the folder


def test_the_same_content_is_shipped_once(tmp_path: Path) -> None:
    first = ship(tmp_path)
    changed = (first / "mlcd" / "errors.py").stat().st_mtime_ns
    time.sleep(0.01)
    assert ship(tmp_path) == first
    assert (first / "mlcd" / "errors.py").stat().st_mtime_ns == changed
    assert ship(tmp_path, FUNCTIONS) != first


@pytest.mark.parametrize("damage", ["removed", "truncated"])
def test_a_damaged_folder_is_made_again(damage: str, tmp_path: Path) -> None:
    file = ship(tmp_path) / "mlcd" / "training" / "steps.py"
    file.unlink() if damage == "removed" else file.write_text("")
    assert ship(tmp_path) == file.parents[2]
    assert "def steps" in file.read_text()


def test_every_room_that_is_shipped_has_only_python_files() -> None:
    """Lithops sends nothing else, and `ship` copies nothing else."""
    for root in (*NODES, *FUNCTIONS):
        folder = shipping.PACKAGE.joinpath(*root.split(".")[1:])
        others = {file for file in folder.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}
        assert others == set()


# ---- reading the list from the package


def make_package(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_the_list_follows_imports_wherever_they_are(tmp_path: Path) -> None:
    files = {
        "__init__.py": "import json\n",
        "room/__init__.py": "",
        "room/first.py": "from mlcd.other.deep import thing\n",
        "room/sub/__init__.py": "from . import beside\nfrom .. import first\n",
        "room/sub/beside.py": "def late():\n    import mlcd.lazy\n",
        "other/__init__.py": "from mlcd.around import x\n",
        "other/deep.py": "from mlcd import names\n",
        "around.py": "",
        "names.py": "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import numpy, mlcd.typed\nelse:\n    import mlcd.real\n",
        "lazy.py": "",
        "typed.py": "",
        "real.py": "",
        "unused.py": "",
    }
    package = make_package(tmp_path, files)
    found = closure("mlcd.room", package=package)
    assert {file.as_posix() for file in found} == set(files) - {"typed.py", "unused.py"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"__init__.py": ""}, "has no module mlcd.room (it is to be copied to nodes); reinstall mlcd"),
        ({"__init__.py": "", "room/a.py": ""}, "has no module mlcd.room "),
        ({"__init__.py": "", "room/__init__.py": "import mlcd.gone\n"}, "has no module mlcd.gone ("),
        ({"__init__.py": "", "room/__init__.py": "", "room/sub/a.py": ""}, "has no file "),
    ],
)
def test_what_is_named_and_missing_is_an_error(files: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(MlcdError) as caught:
        closure("mlcd.room", package=make_package(tmp_path, files))
    assert message in str(caught.value)


def test_a_package_that_nodes_may_lack_is_an_error(tmp_path: Path) -> None:
    package = make_package(tmp_path, {"__init__.py": "", "room.py": "def late():\n    import pydantic.fields\n"})
    with pytest.raises(NeedsPackage, match=r"room.py:2: needs the package pydantic"):
        closure("mlcd.room", package=package)
    assert closure("mlcd.room", needs=("pydantic",), package=package)
