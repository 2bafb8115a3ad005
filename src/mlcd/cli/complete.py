"""What the shell offers after TAB: run names, strategies, clouds, instance types, job files.

Completion must never print an error: what cannot be read offers nothing.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.shell_completion import CompletionItem

from mlcd.errors import MlcdError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click

JOB_SUFFIXES = (".yaml", ".yml")
MOST_RUNS = 100
"""A shell that shows more helps nobody, and each takes milliseconds to read."""
_PLAIN = re.compile(r"[\w@%+=:.-]+")
"""Names that a shell takes as they are: bash puts what is offered on the command line unquoted, `$(...)` too."""


def complete_runs(ctx: "click.Context", param: "click.Parameter", incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Names of runs, the newest first, with what they are."""
    with suppress(MlcdError, OSError):
        from mlcd.store.store import Store, has_store, home

        if has_store(home()):
            with Store(home(), reading=True) as store:
                found = list(store.newest(MOST_RUNS))
            return [
                CompletionItem(run.run_id, help=f"{run.kind} on {run.cloud}, {run.status}")
                for run in found
                if run.run_id.startswith(incomplete) and _PLAIN.fullmatch(run.run_id)
            ]
    return []


def complete_jobs(ctx: "click.Context", param: "click.Parameter", incomplete: str) -> list[CompletionItem]:
    """Job files and folders; for `mlcd train` names of runs too, for `mlcd serve` models too."""
    wanted = (*JOB_SUFFIXES, ".onnx") if ctx.info_name == "serve" else JOB_SUFFIXES
    folder, _, start = incomplete.rpartition("/")
    found = []
    with suppress(OSError, ValueError):
        for entry in sorted(Path(f"{folder}/" if folder or incomplete.startswith("/") else ".").iterdir()):
            path = f"{folder}/{entry.name}" if "/" in incomplete else entry.name
            if not entry.name.startswith(start or "") or (entry.name.startswith(".") and not start.startswith(".")):
                continue
            if not _PLAIN.fullmatch(entry.name):
                continue
            if entry.is_dir():
                found.append(CompletionItem(f"{path}/"))
            elif entry.suffix.lower() in wanted:
                found.append(CompletionItem(path))
    return [*found, *(complete_runs(ctx, param, incomplete) if ctx.info_name == "train" else [])]


def complete_strategies(ctx: "click.Context", param: "click.Parameter", incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Strategies of `mlcd train` and `mlcd serve`, schedulers of `mlcd serverless`."""
    command = ctx.info_name or ""
    with suppress(MlcdError):
        if command == "serverless":
            from mlcd.schedulers.registry import SCHEDULERS

            return _starting(SCHEDULERS, incomplete)
        from mlcd.plugins import STRATEGIES as PLUGINS
        from mlcd.plugins import plugin_names
        from mlcd.search.registry import BUILT_IN, SERVING, STRATEGIES

        own = plugin_names(PLUGINS, built_in=BUILT_IN)
        return _starting(SERVING if command == "serve" else (*STRATEGIES, *own), incomplete)
    return []


def complete_clouds(ctx: "click.Context", param: "click.Parameter", incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """What `--on` takes."""
    with suppress(MlcdError):
        if ctx.info_name == "serverless":
            return _starting(("sim/lambda", "lithops/localhost", "lithops/aws_lambda"), incomplete)
        if ctx.info_name == "serve":
            return _starting(("local",), incomplete)
        from mlcd.catalog import load_catalog
        from mlcd.jobs.plugin import cloud_names
        from mlcd.jobs.real import DIRECT, SKYPILOT
        from mlcd.jobs.where import BUILT_IN

        simulated = [f"sim/{cloud}" for cloud in load_catalog().clouds]
        return _starting((*simulated, "replay/", *DIRECT, *SKYPILOT, *cloud_names(BUILT_IN)), incomplete)
    return []


def complete_types(ctx: "click.Context", param: "click.Parameter", incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Instance types, named sets and accelerators, of one cloud if `--cloud` was given."""
    with suppress(MlcdError):
        from mlcd.catalog import load_catalog
        from mlcd.catalog.sets import cloud_of

        catalog = load_catalog()
        cloud = ctx.params.get("cloud")
        types = [i for i in catalog.instances if cloud in (None, i.cloud)]
        sets = [name for name in catalog.sets if cloud in (None, cloud_of(name))]
        accelerators = dict.fromkeys(i.accelerator for i in types if i.accelerator)
        return _starting((*sets, *(i.name for i in types), *accelerators), incomplete)
    return []


def complete_catalog_clouds(ctx: "click.Context", param: "click.Parameter", incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Clouds of the catalog."""
    with suppress(MlcdError):
        from mlcd.catalog import load_catalog

        return _starting(load_catalog().clouds, incomplete)
    return []


def complete_templates(ctx: "click.Context", param: "click.Parameter", incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Templates of `mlcd init`."""
    from mlcd.spec import TEMPLATES

    return [CompletionItem(name, help=each.what) for name, each in TEMPLATES.items() if name.startswith(incomplete)]


def _starting(names: "Iterable[Any]", incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(str(name)) for name in names if str(name).startswith(incomplete)]
