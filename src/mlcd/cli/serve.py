import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcd.cli.complete import complete_clouds, complete_jobs, complete_strategies
from mlcd.cli.examples import examples
from mlcd.cli.output import (
    FilePath,
    ask_to_spend,
    output_option,
    print_json,
    print_run,
    print_text,
    progress,
    seed_option,
    track_option,
)
from mlcd.errors import BadInput
from mlcd.untrusted import whole_number

if TYPE_CHECKING:
    from mlcd.clouds.serving.deploy import Deployed
    from mlcd.jobs.serve import PreparedServing
    from mlcd.run.run import SearchRun
    from mlcd.space import Space
    from mlcd.spec.serve import ServerCommand, ServeSpec

_KINDS = ("compose", "kubernetes", "kserve", "skyserve", "triton")


@click.command(
    epilog=examples(
        "mlcd serve model.onnx --slo p99=50ms",
        "mlcd serve model.onnx --slo p99=50ms --rate 200/s --deploy",
        "mlcd serve job.yaml --write compose deploy/",
    )
)
@click.argument("model", metavar="MODEL.onnx|JOB.yaml", shell_complete=complete_jobs)
@click.option(
    "--slo",
    metavar="p99=TIME",
    multiple=True,
    callback=lambda _ctx, _option, given: ",".join(given) if given else None,
    help="Latency limit of requests, such as p99=50ms.",
)
@click.option("--rate", metavar="N/s", help="Requests per second to sustain; a higher rate is no better.")
@click.option("--maximize", metavar="WHAT", help="What to maximize: 'requests per dollar' (the default) or rate.")
@click.option("--trials", metavar="N", help="Maximum number of load tests.  [default: 6]")
@click.option("--budget", metavar="MONEY", help="Cap on load tests and verification, such as '1 USD'.")
@click.option("--deadline", metavar="TIME", help="Time limit of load tests and verification, such as 20min.")
@click.option(
    "--strategy",
    metavar="NAME[:OPTIONS]",
    shell_complete=complete_strategies,
    help="Search strategy, such as falcon or falcon-transfer.",
)
@click.option(
    "--on",
    metavar="INFRA",
    shell_complete=complete_clouds,
    help="Where to serve; overrides resources.infra.  [default: local]",
)
@click.option("--size", "sizes", metavar="AXIS=N", multiple=True, help="Size of an axis that the model leaves open.")
@click.option("--deploy", is_flag=True, help="Leave the recommended server running on this machine.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the deployed server.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port of the deployed server; 0: any free port.",
)
@click.option(
    "--write",
    "writes",
    type=(click.Choice(_KINDS), FilePath()),
    multiple=True,
    metavar="KIND DIR",
    help="Write files to serve the model elsewhere: compose, kubernetes, kserve, skyserve or triton.",
)
@seed_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask before spending real money.")
@click.option("--dry-run", is_flag=True, help="Show what would be tried; start nothing.")
@track_option
@output_option
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    *,
    model: str,
    sizes: tuple[str, ...],
    deploy: bool,
    host: str,
    port: int,
    writes: tuple[tuple[str, Path], ...],
    seed: int,
    yes: bool,
    dry_run: bool,
    track: tuple[str, ...],
    output: str,
    **flags: str | None,
) -> None:
    """Find the best way to serve a model, and serve it.

    MODEL.onnx is the model; JOB.yaml is a job file that names one. mlcd starts and load-tests a few configurations
    (batch, threads, replicas, precision). The one with the most requests per dollar within the latency limit is
    verified for a minute and recommended. The answer goes to standard output, progress to standard error.
    """
    from mlcd.jobs.prepared import begin
    from mlcd.jobs.serve import prepare
    from mlcd.report.origin import served_here_text
    from mlcd.spec.serving import is_job_file
    from mlcd.spec.template import mark_notes
    from mlcd.store.store import Store, home

    spec = _spec(model, flags, sizes)
    if deploy and spec.resources.infra != "local":
        raise BadInput(f"--deploy: starts a server on this machine only, and the job serves on {spec.resources.infra}")
    if deploy:
        from mlcd.clouds.serving.deploy import check_port

        check_port(host, port)
    for _, folder in writes:
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"--write: {folder} is a file, not a folder")
    if spec.server is not None:
        _check_writes(spec.server, [kind for kind, _ in writes])
    prepared = prepare(spec, seed=seed, folder=home())
    if is_job_file(model):
        prepared = replace(prepared, notes=(*mark_notes(model, spec.source), *prepared.notes))
    if dry_run:
        ctx.exit(_print_dry_run(prepared, output))
    if not yes:
        ask_to_spend(prepared)
    nominal = () if prepared.charged else (served_here_text(prepared.cloud).removesuffix("."),)
    for note in (*prepared.notes, *nominal):
        print_text(f"Note: {note}", err=True)
    with Store(home()) as store, progress(prepared, track) as observer:
        record = begin(prepared, store=store, observer=observer)
    deployed, written = _use(record, prepared, spec, deploy=(host, port) if deploy else None, writes=writes)
    _print(record, output, deployed, written)
    ctx.exit(record.status.exit_code)


def _spec(model: str, flags: Mapping[str, str | None], sizes: tuple[str, ...]) -> "ServeSpec":
    """The job of a file, or of a model with defaults for everything else; with the flags applied."""
    from mlcd.spec.serving import is_job_file, model_job, read_serve, with_flags

    if not is_job_file(model):
        return with_flags(model_job(model, dict(map(_size, sizes))), flags)
    if sizes:
        raise BadInput("--size: only for a model; in a job file write sizes: {AXIS: N}")
    return with_flags(read_serve(model), flags)


def _size(text: str) -> tuple[str, int]:
    axis, _, size = text.rpartition("=")
    number = whole_number(size)
    if not axis or number is None:
        raise BadInput(f"--size: must have the form AXIS=N, such as sequence=128 (got {text[:80]!r})")
    return axis, number


def _check_writes(server: "ServerCommand", kinds: list[str]) -> None:
    """Raises BadInput for files that cannot be written for a server that is a command."""
    from mlcd.report.command_files import WITHOUT_IMAGE

    for kind in kinds:
        if kind == "triton":
            allowed = ", ".join(kind for kind in _KINDS if kind != "triton")
            raise BadInput(f"--write: triton is for ONNX models; for a server that is a command: {allowed}")
        if server.nodes > 1:
            raise BadInput(f"--write {kind}: servers over several nodes (server.nodes) are not written in this version")
        if kind not in WITHOUT_IMAGE and not server.image:
            raise BadInput(
                f"--write {kind}: server.image is missing: the container image in which server.run works,"
                " such as vllm/vllm-openai:latest"
            )


def _use(
    record: "SearchRun",
    prepared: "PreparedServing",
    spec: "ServeSpec",
    *,
    deploy: tuple[str, int] | None,
    writes: tuple[tuple[str, Path], ...],
) -> tuple["Deployed | None", list[Path]]:
    """Deploy the choice and write its files, as requested, if there is a choice."""
    from mlcd.cli.serve_files import start_seconds, write_command_files, write_files
    from mlcd.clouds.serving import CommandServing, LocalServing
    from mlcd.findings import shown
    from mlcd.report.service_files import START_FACTOR

    choice = shown(record).serve_findings.choice
    if choice is None:
        return None, []
    server = prepared.server
    written: list[Path] = []
    for kind, folder in writes:
        if isinstance(server, LocalServing):
            written += write_files(kind, folder, record, server, prepared.nodes)
        elif isinstance(server, CommandServing) and spec.server is not None:
            written += write_command_files(kind, folder, record, server, spec=spec, nodes=prepared.nodes)
    if deploy is None:
        return None, written
    from mlcd.clouds.serving.deploy import READY_SECONDS
    from mlcd.clouds.serving.deploy import deploy as start

    host, port = deploy
    ready_seconds = max(READY_SECONDS, START_FACTOR * start_seconds(record, choice.config))
    config, run_id = choice.config, record.run_id
    return start(prepared.server, config, run_id=run_id, host=host, port=port, ready_seconds=ready_seconds), written


def _print(record: "SearchRun", output: str, deployed: "Deployed | None", written: list[Path]) -> None:
    print_run(
        record,
        output,
        deployed=None if deployed is None else {"address": deployed.address, "pid": deployed.pid},
        written=[str(path) for path in written],
    )
    if output == "json":
        return
    if written:
        print_text("", "Written: " + ", ".join(map(str, written)))
    if deployed is not None:
        from mlcd.report.serving import is_chat

        place = deployed.address if is_chat(record) else f"{deployed.address}/v2/models/{deployed.model}"
        print_text(
            "",
            f"Serving at {place} (process {deployed.pid}, log {deployed.log}).",
            f"To stop it: mlcd down {record.run_id} -y",
        )


def _print_dry_run(prepared: "PreparedServing", output: str) -> int:
    """Print what would be tried. Returns the exit code: that of an infeasible run if no load test fits the limits."""
    from mlcd.cli.dry_run import first_look
    from mlcd.deciders.verification import MOST_VERIFICATIONS
    from mlcd.report.wording import plural
    from mlcd.run.header import CHAT
    from mlcd.space import value_text
    from mlcd.trial.outcome import Status
    from mlcd.units import format_seconds

    look = first_look(prepared)
    is_chat = prepared.serving is not None and prepared.serving.scenario == CHAT
    goal = prepared.problem.goal.serving_words(tokens=is_chat)
    code = 0 if look.allowed else Status.INFEASIBLE.exit_code
    problem, verify_seconds = prepared.problem, prepared.test.verify_seconds
    policy = problem.trial
    tests_seconds = policy.seconds * min(problem.max_trials, len(problem.space))
    seconds = tests_seconds + verify_seconds
    longest = tests_seconds + (MOST_VERIFICATIONS if verify_seconds else 0) * verify_seconds
    if output == "json":
        print_json(
            {
                "kind": str(prepared.kind),
                "name": prepared.name,
                "goal": goal,
                "configurations": len(problem.space),
                "configurations_within_limits": look.allowed,
                "ways_out": [way.text for way in look.relaxations],
                "trials": problem.max_trials,
                "strategy": prepared.strategy,
                "scenario": prepared.serving.scenario if prepared.serving else None,
                "expected_seconds": seconds,
                "expected_seconds_if_verifications_fail": longest,
                "notes": list(prepared.notes),
            }
        )
        return code
    print_text(f"{prepared.name}: {goal}")
    print_text(
        f"{plural(len(problem.space), 'configuration')}: "
        + "; ".join(f"{k.name} {', '.join(map(value_text, k.values))}" for k in problem.space.knobs)
        + _excluded_text(problem.space)
    )
    tests = f"At most {plural(problem.max_trials, 'load test')} of {format_seconds(policy.seconds)}"
    verified = f", then a verification of {format_seconds(verify_seconds)}" if verify_seconds else ""
    print_text(f"{tests} by {prepared.strategy}{verified}: about {format_seconds(seconds)}. Nothing was started.")
    if verify_seconds:
        again = f"up to {MOST_VERIFICATIONS} verifications in all, about {format_seconds(longest)}"
        print_text(f"A verification that fails is repeated at a lower rate or with the next best: {again}.")
    print_text("The time to start each server comes on top.")
    for note in prepared.notes:
        print_text(f"Note: {note}")
    if look.allowed < len(problem.space):
        print_text(f"Within the limits: a first load test of {look.allowed:,} of them.")
    if not look.allowed:
        print_text("Nothing fits these limits: " + "; ".join(way.text for way in look.relaxations))
    return code


def _excluded_text(space: "Space") -> str:
    """That there are fewer configurations than combinations of these values; "" if there are not."""
    every = math.prod(len(knob.values) for knob in space.knobs)
    left_out = every - len(space)
    return f"; {left_out:,} of these {every:,} combinations are excluded" if left_out else ""
