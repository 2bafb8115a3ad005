"""Talks to MLflow or Weights & Biases: `python worker.py mlflow`, told by JSON lines on standard input.

Run as a script, by a Python that need not have mlcd: only the standard library and the tracker's package are imported.

    {"type": "begin", "name": ..., "params": {...}}
    {"type": "child", "name": ..., "params": {...}, "metrics": {...}, "tags": {...}, "failed": false,
     "started": ..., "ended": ...}
    {"type": "metrics", "metrics": {...}, "step": 3}
    {"type": "end", "metrics": {...}, "tags": {...}, "failed": false, "files": [...]}

Where the input ends without an `end`, mlcd was interrupted or killed, and the parent is marked so. What goes wrong is
printed as `problem: ...`, and nothing more is done. `python worker.py mlflow 30` ends 30 s after its input at the
latest, with all that the tracker's package has started: where mlcd was killed, nobody else would end it.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

EXPERIMENT = "mlcd"
"""The experiment (MLflow) or project (W&B), unless the tracker's own variable names one."""
MOST_LETTERS = 500
"""Of a parameter or a tag: the least that MLflow's servers have taken since version 1.28."""


class Tracker(Protocol):
    """One tracker: a parent run, a child for each step."""

    def begin(self, name: str, params: dict[str, str]) -> None:
        """Start the parent."""

    def child(self, message: dict[str, Any]) -> None:
        """Record one step, whole."""

    def metrics(self, values: dict[str, float], step: int) -> None:
        """Record how the account stands after a step."""

    def end(self, message: dict[str, Any] | None) -> None:
        """End the parent; None: it was cut off."""


class Mlflow:
    """MLflow: a nested run a step. Where to is MLFLOW_TRACKING_URI's to say, or else MLflow's default."""

    def __init__(self) -> None:
        from mlflow.tracking import MlflowClient  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

        self.client = MlflowClient()
        self.parent = ""
        self.experiment = ""

    def begin(self, name: str, params: dict[str, str]) -> None:
        """See Tracker."""
        wanted = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self.client.get_experiment_by_name(wanted)
        self.experiment = found.experiment_id if found else self.client.create_experiment(wanted)
        self.parent = self.client.create_run(self.experiment, run_name=name, tags={"mlcd.run": name}).info.run_id
        self._log(self.parent, params=params)

    def child(self, message: dict[str, Any]) -> None:
        """See Tracker."""
        started, ended = (int(message[key] * 1000) for key in ("started", "ended"))
        run = self.client.create_run(
            self.experiment,
            start_time=started,
            run_name=message["name"],
            tags={"mlflow.parentRunId": self.parent, **_short(message["tags"])},
        ).info.run_id
        self._log(run, params=message["params"], metrics=message["metrics"])
        self.client.set_terminated(run, "FAILED" if message["failed"] else "FINISHED", end_time=max(started, ended))

    def metrics(self, values: dict[str, float], step: int) -> None:
        """See Tracker."""
        self._log(self.parent, metrics=values, step=step)

    def end(self, message: dict[str, Any] | None) -> None:
        """See Tracker."""
        if not self.parent:
            return
        if message is None:
            self.client.set_terminated(self.parent, "KILLED")
            return
        self._log(self.parent, metrics=message["metrics"], tags=message["tags"])
        for file in message.get("files", ()):
            self.client.log_artifact(self.parent, file)
        self.client.set_terminated(self.parent, "FAILED" if message["failed"] else "FINISHED")

    def _log(
        self,
        run: str,
        *,
        params: dict[str, str] | None = None,
        metrics: dict[str, float] | None = None,
        tags: dict[str, str] | None = None,
        step: int = 0,
    ) -> None:
        from mlflow.entities import (  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
            Metric,
            Param,
            RunTag,
        )

        now = int(time.time() * 1000)
        self.client.log_batch(
            run,
            metrics=[Metric(name, value, now, step) for name, value in (metrics or {}).items()],
            params=[Param(name, value) for name, value in _short(params or {}).items()],
            tags=[RunTag(name, value) for name, value in _short(tags or {}).items()],
        )


class Wandb:
    """Weights & Biases: the parent and a run a step in one group. WANDB_MODE=offline and the like are wandb's own."""

    def __init__(self) -> None:
        import wandb  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

        self.wandb = wandb
        self.parent: Any = None
        self.group = ""

    def begin(self, name: str, params: dict[str, str]) -> None:
        """See Tracker."""
        self.group = name
        self.parent = self._run(name, "run", params)

    def child(self, message: dict[str, Any]) -> None:
        """See Tracker."""
        run = self._run(message["name"], message["params"].get("role", "step"), message["params"])
        run.log(message["metrics"])
        run.summary.update(message["tags"])
        run.finish(exit_code=int(message["failed"]))

    def metrics(self, values: dict[str, float], step: int) -> None:
        """See Tracker."""
        self.parent.log({**values, "step": step})

    def end(self, message: dict[str, Any] | None) -> None:
        """See Tracker."""
        if self.parent is None:
            return
        if message is None:
            self.parent.finish(exit_code=130)
            return
        self.parent.summary.update({**message["metrics"], **message["tags"]})
        files = message.get("files", ())
        if files:
            artifact = self.wandb.Artifact(f"mlcd-{self.group}", type="mlcd-report")
            for file in files:
                artifact.add_file(file)
            self.parent.log_artifact(artifact)
        self.parent.finish(exit_code=int(message["failed"]))

    def _run(self, name: str, role: str, params: dict[str, str]) -> Any:
        return self.wandb.init(
            project=os.environ.get("WANDB_PROJECT", EXPERIMENT),
            group=self.group,
            job_type=role,
            name=name,
            config=params,
            reinit="create_new",  # the parent stays open beside its children
            settings=self.wandb.Settings(silent=True, console="off"),
        )


def _short(values: dict[str, str]) -> dict[str, str]:
    return {name: value[:MOST_LETTERS] for name, value in values.items()}


def follow(tracker: Tracker, lines: Iterable[str]) -> None:
    """Tell the tracker what the lines say, until an `end` or the end of the lines."""
    for line in lines:
        message = json.loads(line)
        match message["type"]:
            case "begin":
                tracker.begin(message["name"], message["params"])
            case "child":
                tracker.child(message)
            case "metrics":
                tracker.metrics(message["metrics"], message["step"])
            case "end":
                tracker.end(message)
                return
    tracker.end(None)


def received(stream: Iterable[str], most_seconds: float) -> Iterator[str]:
    """The lines of a stream, which is read by a thread: so its end is known while a tracker hangs."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)
        time.sleep(most_seconds)
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    return iter(lines.get, None)


def main(name: str, most_seconds: float) -> int:
    """Follow standard input to its end. Whatever a tracker raises is a problem to tell, and the end of tracking."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the packages print is not for mlcd
    lines = received(sys.stdin, most_seconds)
    try:
        tracker: Tracker = Mlflow() if name == "mlflow" else Wandb()
        follow(tracker, lines)
    except Exception as error:  # the edge of this process: nothing that a tracker raises may go further
        print(f"problem: {' '.join(f'{type(error).__name__}: {error}'.split())[:400]}", file=answer, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
