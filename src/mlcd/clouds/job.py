"""A user's real job as a Cloud: it runs on an engine's nodes, and its progress is read from what it writes."""

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from mlcd.clouds.busy import busy_text
from mlcd.clouds.node_lease import POLL_SECONDS, NodeLease, free_ports
from mlcd.clouds.nodes import Closable, Monitored, NodeEngine, Nodes, NodesState, RemoteFiles
from mlcd.clouds.provider import JobProgress, Lease, LeaseFailed, Order, Purpose, Settled
from mlcd.clouds.reading import Heard, Reading, ReportSource, progress_source
from mlcd.clouds.silence import silence_text
from mlcd.clouds.workspace import Workspace, copy_or_move, copy_workdir, files_at
from mlcd.errors import ProviderError
from mlcd.home import private_folder, write_private
from mlcd.home.envs import forget_in_lease
from mlcd.platforms.agent import Job
from mlcd.problem import LEAST_DONE_SHARE
from mlcd.space import DEPLOYMENT, UNSET, Config
from mlcd.spec.batches import LearningRate, TargetSpec
from mlcd.spec.real import ProgressRule
from mlcd.transformer import Transformer
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.trial import FailureKind
from mlcd.untrusted import Malformed, check_way, delete_tree, hidden, last_line, last_lines, printable

COUNTED_LOG_BYTES = 4 * 1024 * 1024
"""The last part of a log whose lines are counted for a message."""
REPORT_SECONDS = 1.0
"""The interval at which a job without news is reported, so that a hang can be ended."""
RELEASE_SECONDS = 4.5
"""The part of the authorised time kept for giving the nodes back: half as much again as a local job that resists takes
(local.AGENT_END_SECONDS), because a busy machine is late. trial.plan.STOP_SECONDS includes it."""
POINT_SECONDS = 0.02
"""Reports that are closer together than this are one point: mlcd.steps reports every 0.1 s, others may all the time."""
SAVE_SECONDS = 120.0
"""How long a job may take to save once asked to: a hanging one would otherwise use up all the authorised time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealJob:
    """The job to run: the job file's fields, resolved.

    samples   of the whole training
    batch     the global batch size
    outputs   paths in the working folder that are fetched at the end of the training
    secrets   values that the job gets from elsewhere (SkyPilot): only to keep them out of messages
    noise     whether the job is asked to report the noise of its gradients
    knobs     names of the knobs that the script must ask for: no command names them as variables
    """

    run: str
    setup: str = ""
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    workdir: Path | None = None
    platform: str = "command"
    topology: str = "ring"
    batch: int | None = None
    samples: float | None = None
    progress: ProgressRule = field(default_factory=ProgressRule)
    checkpoints: bool = False
    outputs: tuple[str, ...] = ()
    learning_rate: LearningRate | None = None
    target: TargetSpec | None = None
    noise: bool = False
    knobs: tuple[str, ...] = ()

    def batch_at(self, config: Config) -> int | None:
        """The global batch size: the configuration's where batch is a knob, else the job's."""
        return int(config["batch"]) if "batch" in dict(config.values) else self.batch


class JobCloud:
    """A real cloud: runs the job on an engine's nodes and keeps its folders under `home`."""

    simulated = False

    def __init__(self, engine: NodeEngine, job: RealJob, *, home: Path, noise: float | None = None) -> None:
        self.engine, self.job, self.home = engine, job, home
        self._noise = engine.noise if noise is None else noise
        self._warned: dict[str, bool] = {}
        """The warnings about what jobs left behind -> whether a lease has reported them."""
        self._adopting = threading.RLock()
        self.handed_over: set[str] = set()
        """Runs of which a trial has left the outputs; written while `Workspace.adopting` is held."""
        self.unread_knobs = set(job.knobs)
        """Knobs that no script has asked for yet."""
        self._has_looked_at_knobs = False

    @property
    def name(self) -> str:
        """The engine's."""
        return self.engine.name

    @property
    def noise(self) -> float:
        """The user's value, else the engine's."""
        return self._noise

    @property
    def outlives_mlcd(self) -> bool:
        """Whether nodes go on without mlcd until their time is over; the engine says so."""
        return getattr(self.engine, "outlives_mlcd", False) is True

    def lease(self, order: Order) -> Lease:
        """Starts nothing until the lease is entered. Raises ProviderError."""
        return JobLease(self, order)

    def close(self) -> None:
        """Close what the engine keeps between leases."""
        if isinstance(self.engine, Closable):
            self.engine.close()

    def reached_samples(self, run_id: str) -> float:
        """Samples of the run's training that are checkpointed, whatever happened to the leases that saved them."""
        return self.workspace(run_id).reached_samples() if self.job.checkpoints else 0.0

    def workspace(self, run_id: str) -> Workspace:
        """The run's folders; what is malformed there is reported once, by the lease that finds it or the next one."""
        return Workspace(self.home, run_id, self._warn, self._adopting)

    def _warn(self, text: str) -> None:
        self._warned.setdefault(text, False)

    def knobs_were_read(self, names: Iterable[str]) -> None:
        """Note what the script of a trial that has run asked for; the first one warns of the others."""
        self.unread_knobs.difference_update(names)
        if self.unread_knobs and not self._has_looked_at_knobs:
            unread = ", ".join(name for name in self.job.knobs if name in self.unread_knobs)
            first = next(name for name in self.job.knobs if name in self.unread_knobs)
            self._warn(
                f"the script did not ask for {unread}: every value gives the same training; use"
                f' mlcd.knob("{first}", default) or ${first.upper()} in `run`'
            )
        self._has_looked_at_knobs = True

    def new_warnings(self) -> list[str]:
        """The warnings that nobody has asked for yet."""
        new = [text for text, reported in list(self._warned.items()) if not reported]  # parallel leases add to it
        self._warned.update(dict.fromkeys(new, True))
        return new


class JobLease(NodeLease):
    """One lease of nodes with the job on them, from the order to the release."""

    def __init__(self, cloud: JobCloud, order: Order) -> None:
        super().__init__(cloud.engine, order, cloud.workspace(order.run_id or "run"))
        self.cloud, self.job = cloud, cloud.job
        self.base_samples = 0.0
        self.total_samples: float | None = None
        self._heard = Heard()
        self.heard: list[Reading] = self._heard
        """The job's reports on gradient noise and model quality, and warnings."""
        self._source: ReportSource | None = None
        self._ended_by_itself = False
        self._missing_outputs: tuple[str, ...] = ()
        self._taken_outputs: set[str] = set()
        self._is_finished = False
        self._given_outputs: dict[str, dict[str, tuple[int, int]]] = {}
        """The user's own files where the job will leave its outputs."""
        self._samples = 0.0
        self._knobs_read: set[str] = set()
        self._transformer: Transformer | None = None

    # ---- the end of the lease

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        fetched = True
        try:
            if self.nodes is not None:
                fetched = self._release_at_exit(self.nodes)
        finally:
            forget_in_lease(self.folder)
        # The copies were for the nodes. Outputs and checkpoint have been fetched; the logs stay.
        if fetched and not self._missing_outputs:
            delete_tree(self.folder / "workdir", below=self.cloud.home)
        if not self._continues or self.space.has(self.folder / "checkpoint"):
            delete_tree(self.folder / "checkpoint", below=self.cloud.home)

    def _release_at_exit(self, nodes: Nodes) -> bool:
        """Give the nodes back after fetching the results; returns whether those were fetched."""
        try:
            self._fetch_results()
        except OSError as error:
            self.space.warn(f"{_named(error)}; results were not fetched, and stay in {self.folder}")
            self._report_warnings()
            return False
        finally:
            self.nodes = None
            nodes.release()
        return True

    def _now(self) -> float:
        """Seconds since 1970 as they were at the order, and what has passed: setting the wall clock changes nothing."""
        return self._began_at + self.elapsed_seconds

    # ---- watching

    def progress(self) -> Iterator[JobProgress]:
        """See mlcd.clouds.provider.Lease; ends when node 0 has succeeded.

        Files of the job that are malformed end it: LeaseFailed names the file.
        """
        source = self._source = progress_source(
            self.job.progress,
            self.folder,
            batch=self.job.batch_at(self.order.config),
            base_samples=self.base_samples,
            clock=self._now,
            below=self.cloud.home,
        )
        try:
            yield from self._points(source)
        except (Malformed, OSError) as problem:
            raise self._failed(FailureKind.ERROR, _named(problem)) from problem

    def _points(self, source: ReportSource) -> Iterator[JobProgress]:
        last = JobProgress(0.0, 0.0)
        yield last
        while True:
            ended = self._has_ended()
            furthest = last.samples
            for point in self._new_points(source, last):
                furthest = max(furthest, point.samples)
                if point.seconds > last.seconds:
                    last = point
                    yield last
            if furthest > last.samples:
                # Files of remote nodes arrive in batches, late: count the furthest reading as of now.
                last = JobProgress(max(self.elapsed_seconds, last.seconds + POLL_SECONDS), furthest)
                yield last
            if ended and not source.behind:
                self._ended_by_itself = True
                now = self.elapsed_seconds
                if now > last.seconds:
                    yield JobProgress(now, last.samples)
                return
            if self.elapsed_seconds - last.seconds >= REPORT_SECONDS:
                last = JobProgress(self.elapsed_seconds, last.samples)
                yield last
            if not source.behind:
                time.sleep(POLL_SECONDS)

    def _new_points(self, source: ReportSource, last: JobProgress) -> list[JobProgress]:
        """What the job has reported since: samples never fall, and at most one point every POINT_SECONDS, and the last.

        A job whose samples fall (it may have been started again from its checkpoint) makes no progress until then.
        """
        found: list[JobProgress] = []
        samples = last.samples
        for reading in source.new_readings():
            self.total_samples = reading.total or self.total_samples
            self._knobs_read.update(reading.knobs)
            self._transformer = reading.transformer or self._transformer
            self._heard.add(reading)
            if reading.samples is None:
                continue
            at = min(max(reading.seconds - self._began_at, 0.0), self.elapsed_seconds)
            samples = self._samples = max(reading.samples - self.base_samples, samples)
            earlier = found[-2] if len(found) > 1 else last
            if found and earlier.seconds <= at < earlier.seconds + POINT_SECONDS:
                found.pop()
            found.append(JobProgress(at, samples))
        return found

    def silence(self) -> str:
        """See mlcd.clouds.silence.ExplainsSilence."""
        if self._source is None:
            return ""
        log = self.folder / "node-0" / "log.txt"
        lines = [line for line in last_lines(log, most_bytes=COUNTED_LOG_BYTES) if line.strip()]
        seen = replace(self._source.seen, log_lines=len(lines), last_line=last_line(log))
        text = silence_text(self.job.progress, seen, has_ended=self._ended_by_itself)
        return hidden(text, {**self.job.secrets, **self.job.envs})

    def disturbance(self) -> str:
        """See mlcd.clouds.silence.NamesDisturbance."""
        shares = getattr(self.cloud.engine, "shares_this_machine", False) is True
        return busy_text() if shares and not self._ended_by_itself else ""

    def has_done_all(self) -> bool:
        """See mlcd.clouds.provider.KnowsItsWork."""
        is_known = self.job.target is not None or (self.job.samples or self.total_samples) is not None
        return is_known and self._did_all()

    def finish(self, at: JobProgress) -> Settled:  # noqa: ARG002 - a real job knows its own progress
        """Ask the job to save, wait for that within the authorised time, fetch everything, give the nodes back.

        Raises LeaseFailed where a trial left a malformed checkpoint; a training is not lost for that, it warns.
        """
        if self.nodes is None:
            raise RuntimeError("the lease is over")
        self._ended_by_itself = self._ended_by_itself or self._has_succeeded()
        if self._continues and not self._exit_or_broken(0):
            with contextlib.suppress(OSError):  # the disk is full: do not ask, then
                self.nodes.ask_to_stop()
            until = min(self.order.seconds - RELEASE_SECONDS, self.elapsed_seconds + SAVE_SECONDS)
            while not self._exit_or_broken(0) and self.elapsed_seconds < until:
                with contextlib.suppress(LeaseFailed):
                    if self.nodes.state() is NodesState.ENDED:
                        break
                time.sleep(POLL_SECONDS)
            if self.has_done_all():  # one with work to do also exits with success when it is asked to stop
                self._ended_by_itself = self._ended_by_itself or self._has_succeeded()
        self._note_knobs()
        used, elapsed = self.nodes.used_seconds(), self.elapsed_seconds
        problems = self._fetch_results()
        self.nodes.release()
        metrics = self._node_metrics(self.nodes)
        self.nodes = None
        if problems and self.order.purpose is Purpose.TRIAL:
            raise self._failed(FailureKind.ERROR, _named(problems[0]))
        return Settled(
            seconds=self.elapsed_seconds,
            reached_samples=self._reached_samples(),
            utilisation=None if used is None else self._share(used, elapsed),
            total_samples=self.total_samples,
            node_metrics=metrics,
            missing_outputs=self._missing_outputs,
            kept_folder=str(self.folder / "workdir") if self._missing_outputs else "",
            is_finished=self._is_finished,
            transformer=self._transformer,
        )

    # ---- inside

    @property
    def _continues(self) -> bool:
        """Whether the job is a part of the run's training: it starts from its checkpoint, and saves it."""
        return self.job.checkpoints and self.order.continues

    def _note_knobs(self) -> None:
        """Tell the cloud which knobs the script asked for, also where it reports its progress in another way."""
        if self.job.knobs and (self.job.progress.pattern or self.job.progress.file):
            with contextlib.suppress(Malformed, OSError):
                source = progress_source(
                    ProgressRule(), self.folder, batch=None, base_samples=0.0, clock=self._now, below=self.cloud.home
                )
                for reading in source.new_readings():
                    self._knobs_read.update(reading.knobs)
        self.cloud.knobs_were_read(self._knobs_read)

    def _reached_samples(self) -> float:
        """Samples of the training that are saved; 0 where this lease is no part of it."""
        return self.cloud.reached_samples(self.space.run_id) if self._continues else 0.0

    def _prepare_folder(self) -> None:
        """Create the lease's folder with all that the nodes need."""
        job, order = self.job, self.order
        private_folder(self.folder)
        if self._continues:
            self.space.reached_samples()
            self.base_samples = self.space.copy_checkpoint(self.folder / "checkpoint")
        elif job.checkpoints:
            private_folder(self.folder / "checkpoint")
        copy_workdir(job.workdir, self.folder / "workdir")
        self._given_outputs = {name: files_at(self.folder / "workdir" / name) for name in job.outputs}
        for rank in range(order.config.nodes):
            (self.folder / f"node-{rank}").mkdir()
        types = {instance.name: instance for instance in self.cloud.engine.offer()}
        batch = job.batch_at(order.config)
        described = Job(
            lease_id=self.lease_id,
            run=job.run,
            setup=job.setup,
            envs=dict(job.envs),
            platform=job.platform,
            topology=job.topology,
            instance=order.config.instance,
            port=free_ports(),
            gpus=types[order.config.instance].accelerators,
            seconds=order.seconds if order.seconds < float("inf") else None,
            batch=batch,
            samples=job.samples,
            noise=job.noise,
            learning_rate=job.learning_rate.at(batch, order.noise_scale) if job.learning_rate and batch else None,
            target=job.target.to_json() if job.target else "",
            knobs={
                name: None if value == UNSET else value for name, value in order.config.values if name not in DEPLOYMENT
            },
            base_samples=self.base_samples,
            checkpoints=job.checkpoints,
            checkpoint_seconds=Job.checkpoint_seconds if order.checkpoint_seconds is None else order.checkpoint_seconds,
        )
        write_private(self.folder / "job.json", described.to_json())  # its envs may hold keys

    def _has_ended(self) -> bool:
        """Whether node 0 has succeeded. Raises LeaseFailed where it or another node failed."""
        if self.nodes is None:
            raise RuntimeError("the lease is over")
        self._state_of(self.nodes)
        exits = self._exits()
        if 0 in exits and exits[0].code == 0:
            return True
        self._check_exits(self.nodes)
        return False

    def _exit_or_broken(self, rank: int) -> bool:
        """Whether the node has ended, or no longer says whether."""
        try:
            return rank in self._exits()
        except (OSError, Malformed):
            return True

    def _has_succeeded(self) -> bool:
        """Whether node 0 has ended by now, successfully."""
        try:
            return any(rank == 0 and end.code == 0 for rank, end in self._exits().items())
        except (OSError, Malformed):
            return False

    def _fetch_results(self) -> tuple[Malformed, ...]:
        """Fetch checkpoint and outputs; call before the nodes are released. Returns what is malformed in a checkpoint.

        What is malformed is not taken and reported as a warning. Raises OSError.
        """
        problems: tuple[Malformed, ...] = ()
        if isinstance(self.nodes, RemoteFiles):
            wanted = ["checkpoint"] if self._continues else []
            self.nodes.fetch([*wanted, *(f"workdir/{name}" for name in self.job.outputs)])
        if self._continues:
            problems = self.space.adopt(self.folder / "checkpoint")
        if self.order.purpose is Purpose.RUN:
            for name in self.job.outputs:
                try:
                    self._fetch_output(name)
                except Malformed as problem:
                    self.space.warn(f"{problem}; the output {name} is not taken")
            self._keep_for_missing_outputs()
        elif self._ended_by_itself and not problems:
            self._take_finished_work()
        self._report_warnings()
        return problems

    def _take_finished_work(self) -> None:
        """Fetch the outputs of a trial whose job did all of the work, if it left them all and no other trial has."""
        if not self._did_all() or not all(self._has_left(name) for name in self.job.outputs):
            return
        with self.space.adopting:  # of parallel trials that finish, one is taken whole
            if self.space.run_id in self.cloud.handed_over:
                return
            try:
                for name in self.job.outputs:
                    self._fetch_output(name)
            except Malformed as problem:
                self.space.warn(f"{problem}; the outputs of this trial are not taken")
                for name in self.job.outputs:
                    delete_tree(self.space.outputs / name, below=self.cloud.home)
            else:
                self._is_finished = True
                self.cloud.handed_over.add(self.space.run_id)

    def _did_all(self) -> bool:
        """Whether the job, which ended by itself, met its target or did the work that its file names."""
        target, total = self.job.target, self.job.samples or self.total_samples
        if target is not None:
            reported = (r.metrics[target.metric] for r in self.heard if target.metric in r.metrics)
            return any(value >= target.value if target.higher else value <= target.value for value in reported)
        return total is None or self._furthest >= LEAST_DONE_SHARE * total

    def _has_left(self, name: str) -> bool:
        """Whether the job wrote this output: a file that came with the user's folder is none."""
        path, given = self.folder / "workdir" / name, self._given_outputs[name]
        return os.path.lexists(path) and (not given or files_at(path) != given)

    @property
    def _furthest(self) -> float:
        """Samples of the training that the job has done by its own count."""
        return self.base_samples + self._samples

    def _node_metrics(self, nodes: Nodes) -> NodeMetrics | None:
        """What the cloud's monitoring reported; None where there is nothing. What cannot be read is a warning."""
        try:
            return nodes.node_metrics() if isinstance(nodes, Monitored) else None
        except (Malformed, OSError) as problem:
            self.space.warn(f"{_named(problem)}; the nodes' metrics are not taken")
            self._report_warnings()
            return None

    def _fetch_output(self, name: str) -> None:
        """Raises Malformed, with nothing taken; OSError."""
        workdir = self.folder / "workdir"
        check_way(workdir / "output", below=self.cloud.home)
        if os.path.lexists(workdir / name):
            copy_or_move(workdir / name, self.space.outputs / name, within=workdir)
            self._taken_outputs.add(name)

    def _keep_for_missing_outputs(self) -> None:
        """Find the outputs that a training which ended by itself did not leave; then keep all that it wrote.

        What an earlier attempt left counts where this one continued from its checkpoint: it is the same training.
        """
        if not self._ended_by_itself:
            return
        left = self._taken_outputs
        if self.base_samples > 0:
            left = {name for name in self.job.outputs if os.path.lexists(self.space.outputs / name)}
        self._missing_outputs = tuple(name for name in self.job.outputs if name not in left)
        if self._missing_outputs and isinstance(self.nodes, RemoteFiles):
            try:
                self.nodes.fetch(["workdir"])
            except (ProviderError, OSError) as error:  # too much, or no room: the training has ended all the same
                self.space.warn(f"{error}; not everything that the node wrote is kept")

    def _report_warnings(self) -> None:
        for text in self.cloud.new_warnings():
            self._heard.add(Reading(seconds=self._now(), warning=printable(text)))

    def _failed(self, kind: FailureKind, message: str, *, billed: bool = True) -> LeaseFailed:
        with contextlib.suppress(OSError):
            self._fetch_results()
        self._report_warnings()
        if kind is FailureKind.LOST and self.order.config.is_spot:
            kind = FailureKind.INTERRUPTED
        return LeaseFailed(
            kind,
            hidden(message, {**self.job.secrets, **self.job.envs}),  # it is recorded, shown, and sent on in reports
            seconds=self.elapsed_seconds,
            billed=billed,
            reached_samples=self._reached_samples(),
        )

    def _share(self, used: float, elapsed: float) -> float | None:
        instance = next(i for i in self.cloud.engine.offer() if i.name == self.order.config.instance)
        available = instance.vcpus * self.order.config.nodes * elapsed
        return min(used / available, 1.0) if available > 0 else None


def _named(problem: Malformed | OSError) -> str:
    """What is wrong with a job's file, with its name."""
    if isinstance(problem, OSError) and problem.filename:
        return printable(f"{problem.filename}: {problem.strerror}")
    return printable(str(problem))
