import os
import platform
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import click

from mlcd.cli.catalog import OLD_DAYS, age_text
from mlcd.cli.examples import examples
from mlcd.cli.output import output_option, print_json, print_text
from mlcd.errors import BadInput, MlcdError
from mlcd.version import __version__


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of the check. `state` is ok, warning, problem, or no: not usable now, for the reason in the text."""

    what: str
    state: str
    text: str


@click.command(epilog=examples("mlcd check", "mlcd check -o json"))
@output_option
@click.pass_context
def check(ctx: click.Context, output: str) -> None:
    """Check what this machine and account can do now.

    Opens the state under MLCD_HOME (and creates it if missing), reads the catalog, looks for optional parts and
    plug-ins; asks the controller of Slurm where its commands are installed. Starts nothing, spends nothing, uses no
    other network. The exit code is 1 if there is a problem.
    """
    findings = [*_machine(), *_clouds(), *_extras(), *_plugins()]
    problem = any(finding.state == "problem" for finding in findings)
    if output == "json":
        print_json({"version": __version__, "ok": not problem, "findings": [asdict(f) for f in findings]})
    else:
        _print(findings)
    ctx.exit(1 if problem else 0)


def _print(findings: list[Finding]) -> None:
    from mlcd.report.text import Rows, Style

    styles = {"ok": Style.GOOD, "warning": Style.NOTE, "problem": Style.BAD, "no": Style.DIM}
    rows = [[f"{finding.state:<7}", finding.what, finding.text] for finding in findings]
    marks = [styles[finding.state] for finding in findings]
    print_text(Rows(rows=rows, align="<<<", gap=2, has_heads=False, marks=marks))


def _machine() -> Iterator[Finding]:
    yield Finding("mlcd", "ok", f"{__version__}, Python {platform.python_version()}, {os.cpu_count()} CPUs")
    from mlcd.store.damage import NotWritable
    from mlcd.store.store import SCHEMA, Store, home

    try:
        with Store(home()) as store:
            place, count = store.place, store.count()
            store.check()
        yield Finding("state", "ok", f"{place} is writable, schema {SCHEMA}, {count} runs")
    except NotWritable as error:
        yield Finding("state", "warning" if os.environ.get("MLCD_STORE") else "problem", str(error))
    except MlcdError as error:
        yield Finding("state", "problem", str(error))


def _clouds() -> Iterator[Finding]:
    from mlcd.catalog import load_catalog

    try:
        catalog = load_catalog()
    except MlcdError as error:
        yield Finding("catalog", "problem", str(error))
        return
    age = catalog.age_days(datetime.now(UTC).date())
    own = f", overridden by {path}" if (path := os.environ.get("MLCD_CATALOG")) else ""
    text = (
        f"{len(catalog.instances)} instance types as of {catalog.date}{own}, {age_text(age)}; docs/catalog.md has more"
    )
    yield Finding("catalog", "warning" if age > OLD_DAYS else "ok", text)
    from mlcd.clouds.sim import MODELS

    for cloud in catalog.clouds:
        yield Finding(f"sim/{cloud}", "ok", f"simulated, {len(catalog.for_cloud(cloud))} types, {len(MODELS)} models")
    yield Finding("replay/FOLDER", "ok", "replays tables of measured runs; docs/replay.md has the format")
    yield from _real_clouds()


def _real_clouds() -> Iterator[Finding]:
    from mlcd.clouds.busy import SLOWER, busy_text
    from mlcd.clouds.gpu_types import counts_text
    from mlcd.clouds.local import usable_cpus
    from mlcd.clouds.minicloud.facilities import missing as minicloud_lacks
    from mlcd.clouds.minicloud.hierarchy import hierarchy
    from mlcd.clouds.skypilot import missing as skypilot_lacks
    from mlcd.clouds.slurm.engine import missing as slurm_lacks
    from mlcd.gpus import find_gpus

    busy = busy_text()
    gpus = counts_text(find_gpus())
    text = f"real trials in processes of this machine, {len(usable_cpus())} processors{f', {gpus}' if gpus else ''}"
    yield Finding("local", "warning" if busy else "ok", f"{text}; {busy}; {SLOWER}" if busy else text)
    lacks = minicloud_lacks()
    isolated = f"real isolated nodes on this machine, with control groups version {hierarchy().version}"
    yield Finding("minicloud", "no" if lacks else "ok", "; ".join(lacks) or isolated)
    unusable = slurm_lacks()
    yield Finding(
        "slurm", "no" if unusable else "ok", unusable or "the controller answers; prices come from the job file"
    )
    for cloud in ("aws", "gcp", "azure", "kubernetes"):
        lack = skypilot_lacks(cloud)
        yield Finding(cloud, "no" if lack else "ok", lack or "through SkyPilot; credential files exist")


def _extras() -> Iterator[Finding]:
    from mlcd.extras import EXTRAS, install_line

    for name, extra in EXTRAS.items():
        if extra.missing:
            yield Finding(f"[{name}]", "no", f"{extra.purpose}; to install it: {install_line(name)}")
        else:
            yield Finding(f"[{name}]", "ok", extra.purpose)


def _plugins() -> Iterator[Finding]:
    from mlcd.jobs.plugin import cloud_plugin
    from mlcd.jobs.where import BUILT_IN as CLOUD_NAMES
    from mlcd.plugins import CLOUDS, SCHEDULERS, STRATEGIES, plugins
    from mlcd.schedulers.registry import SCHEDULERS as SCHEDULER_NAMES
    from mlcd.schedulers.registry import scheduler_class
    from mlcd.search.registry import BUILT_IN as STRATEGY_NAMES
    from mlcd.search.registry import strategy_class

    groups: tuple[tuple[str, Collection[str], Callable[[str], object]], ...] = (
        (STRATEGIES, STRATEGY_NAMES, strategy_class),
        (SCHEDULERS, SCHEDULER_NAMES, scheduler_class),
        (CLOUDS, CLOUD_NAMES, lambda name: cloud_plugin(name, CLOUD_NAMES)),
    )
    for group, built_in, load in groups:
        for found in plugins(group, built_in=built_in):
            what = f"{found.noun} {found.name}"
            try:
                if found.problem:
                    raise BadInput(f"plug-in package {found.package}: {found.problem}")
                load(found.name)
            except MlcdError as error:
                yield Finding(what, "no", str(error))
            else:
                yield Finding(what, "ok", f"plug-in of {found.package}")
