"""Answers of a cloud beside its progress: what is no answer is named, and never believed."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import pytest
from tests.unit.engine.test_checked import CONFIG, ORDER, Told, ToldFunctions, epoch, leased

from mlcd.clouds.provider import JobProgress, LeaseFailed, Order, Settled
from mlcd.clouds.reading import Reading
from mlcd.clouds.serving.provider import Endpoint
from mlcd.engine import checked
from mlcd.engine.checked import (
    CheckedCloud,
    CheckedListener,
    CheckedServingCloud,
    cloud_name,
    is_simulated,
    number,
    text_of,
)
from mlcd.engine.checked_epochs import CheckedFunctions
from mlcd.errors import BadInput, ProviderError
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd
from mlcd.untrusted import Malformed


def raises(error: BaseException) -> Callable[..., Any]:
    def raising(*_: object) -> Any:
        raise error

    return raising


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("made")

    __repr__ = __str__


def test_numbers_and_errors_that_cannot_be_shown() -> None:
    with pytest.raises(Malformed, match="seconds: should be a number"):
        number(Fraction(10**400), "seconds")
    with pytest.raises(Malformed, match="is Unprintable"):
        number(Unprintable(), "seconds")
    assert text_of(Unprintable()) == "Unprintable"
    assert text_of(ValueError("one\ntwo")) == "ValueError: one"


class Nameless:
    name = property(raises(ValueError("made")))
    simulated = property(raises(ValueError("made")))


def test_a_cloud_without_a_name_is_called_by_its_type_and_must_say_whether_it_is_simulated() -> None:
    assert cloud_name(Nameless()) == "Nameless"
    with pytest.raises(ProviderError, match="the cloud Nameless: simulated raised ValueError: made"):
        is_simulated(Nameless())
    with pytest.raises(ProviderError, match="simulated should be True or False, is 'no'"):
        is_simulated(Told(simulated="no"))  # type: ignore[arg-type]


class Noisy(Told):
    noise = property(raises(ValueError("made")))

    def __init__(self) -> None:
        pass


def test_noise_that_is_none_is_the_providers_error() -> None:
    assert CheckedCloud(cloud=Told(noise=0.5)).noise == 0.5
    with pytest.raises(ProviderError, match="the cloud told: noise: should be between 0 and 1, is 2"):
        _ = CheckedCloud(cloud=Told(noise=2.0)).noise
    with pytest.raises(ProviderError, match="noise raised ValueError: made"):
        _ = CheckedCloud(cloud=Noisy()).noise


@dataclass
class Saving(Told):
    saved: Any = 5.0

    def reached_samples(self, _run_id: str) -> float:
        if isinstance(self.saved, Exception):
            raise self.saved
        return self.saved  # type: ignore[no-any-return]


def test_only_a_plausible_checkpoint_counts_as_saved() -> None:
    def reached(saved: Any) -> tuple[float, list[str]]:
        cloud = Saving(saved=saved)
        return CheckedCloud(cloud=cloud, warn=cloud.warned.append, most_samples=10.0).reached_samples(
            "run"
        ), cloud.warned

    assert CheckedCloud(cloud=Told()).reached_samples("run") == 0.0
    assert reached(5.0) == (5.0, [])
    for wrong, says in ((11.0, "should be between 0 and 10"), (ValueError("made"), "raised ValueError: made")):
        samples, (warned,) = reached(wrong)
        assert samples == 0.0
        assert says in warned
        assert warned.endswith("nothing counts as saved")
    with pytest.raises(BadInput):
        reached(BadInput("of mlcd itself"))


def test_nodes_that_cannot_be_given_back_are_a_failure_unless_there_is_one_already() -> None:
    cloud = Told()
    cloud.__class__ = type("Keeping", (Told,), {"__exit__": raises(OSError("made"))})
    with pytest.raises(LeaseFailed, match="could not give the nodes back: OSError: made"), leased(cloud):
        pass
    with pytest.raises(KeyError), leased(cloud):
        raise KeyError("inside")
    (warned,) = cloud.warned
    assert "could not give the nodes back" in warned
    cloud.__class__ = type("Refusing", (Told,), {"__exit__": raises(ProviderError("of mlcd itself"))})
    with pytest.raises(ProviderError, match="of mlcd itself"), leased(cloud):
        pass


def test_reports_without_samples_and_without_end_are_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "MOST_IDLE_REPORTS", 10)
    monkeypatch.setattr(checked, "MOST_REPORTS", 20)
    for simulated, samples, says in ((True, 0.0, "no sample in 10 reports"), (False, 1.0, "more than 20 progress")):
        cloud = Told(points=[(float(at), samples * at) for at in range(1, 50)], simulated=simulated)
        with leased(cloud) as lease, pytest.raises(LeaseFailed, match=says) as failed:
            list(lease.progress())
        assert failed.value.kind is FailureKind.HANG


@dataclass
class Heard(Told):
    heard: Any = ()
    silent: Any = "it wrote nothing"

    def silence(self) -> str:
        if isinstance(self.silent, Exception):
            raise self.silent
        return self.silent  # type: ignore[no-any-return]


class Deaf(Told):
    @property
    def heard(self) -> list[Reading]:
        if not self.points:
            return []
        raise ValueError("made")


def test_what_a_job_reports_beside_its_progress_is_taken_where_it_is_that() -> None:
    reading = Reading(seconds=1.0)
    with leased(Heard(heard=[reading, "noise"])) as lease:
        assert isinstance(lease, CheckedListener)
        assert lease.heard == [reading]
        assert lease.silence() == "it wrote nothing"
    for wrong in (3, ValueError("made")):
        with leased(Heard(silent=wrong)) as lease:
            assert isinstance(lease, CheckedListener)
            assert lease.silence() == ""
    deaf = Deaf()
    with leased(deaf) as lease:
        assert isinstance(lease, CheckedListener)
        deaf.points = [(1.0, 1.0)]
        assert lease.heard == []
        assert lease.silence() == ""


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ("much", "node_metrics: should be NodeMetrics"),
        (NodeMetrics(source="x", nodes=1, cpu_percent=1.0), ""),
        (None, ""),
    ],
)
def test_node_metrics_are_checked(metrics: Any, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Told, "finish", lambda _self, _at: Settled(seconds=1.0, node_metrics=metrics))
    with leased(Told(simulated=True)) as lease:
        if not says:
            assert lease.finish(JobProgress(1.0, 1.0)).node_metrics == metrics
            return
        with pytest.raises(LeaseFailed, match=says):
            lease.finish(JobProgress(1.0, 1.0))


def test_node_metrics_that_changed_after_they_were_made_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = NodeMetrics(source="x", nodes=1, cpu_percent=1.0)
    object.__setattr__(metrics, "cpu_percent", 200.0)
    monkeypatch.setattr(Told, "finish", lambda _self, _at: Settled(seconds=1.0, node_metrics=metrics))
    with (
        leased(Told(simulated=True)) as lease,
        pytest.raises(LeaseFailed, match="cpu_percent must be between 0 and 100"),
    ):
        lease.finish(JobProgress(1.0, 1.0))


ENDPOINT = Endpoint(address="http://here", model="m")


@dataclass
class Server(Told):
    endpoint: Any = ENDPOINT
    memory: Any = 2

    def check(self) -> None:
        if self.memory is None:
            raise OSError("gone")

    def memory_gib(self) -> Any:
        return self.memory


def test_a_servers_answers_are_checked() -> None:
    def served(cloud: Server) -> Any:
        made = CheckedServingCloud(cloud=cast(Any, cloud), clock=lambda: 0.0)
        return made.lease(Order(config=CONFIG, seconds=10.0))

    with served(Server()) as lease:
        assert lease.endpoint.model == "m"
        assert lease.memory_gib() == 2.0
        lease.check()
    with served(Server(endpoint="http://here", memory="much")) as lease:
        with pytest.raises(LeaseFailed, match="endpoint: the answer: should be Endpoint"):
            _ = lease.endpoint
        with pytest.raises(LeaseFailed, match=r"memory_gib\(\): the answer: should be a number"):
            lease.memory_gib()
    with served(Server(memory=None)) as lease:
        assert lease.memory_gib() is None
        with pytest.raises(LeaseFailed, match=r"check\(\) raised OSError: gone"):
            lease.check()


# ---- functions


class Recovering(ToldFunctions):
    """`answer` is what `finished` gives or raises; `lost` gives money that is none."""

    def finished(self, _run_id: str, _number: int) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def lost(self, _order: object, *, elapsed_seconds: float) -> Any:
        return "much" if elapsed_seconds else Usd(1)


def test_an_epoch_that_nobody_watched_is_charged_in_full_where_the_cloud_does_not_say() -> None:
    def after(answer: Any, *, interrupted: bool = False, seconds: float = 0.0) -> tuple[Any, Usd, list[str]]:
        warned: list[str] = []
        cloud = CheckedFunctions(cloud=Recovering(answer), warn=warned.append)
        done, calls, usd = cloud.after(ORDER, interrupted=interrupted, elapsed_seconds=seconds)
        assert calls == ()
        return done, usd, warned

    assert after(epoch()) == (epoch(), ORDER.usd, [])
    assert after(None) == (None, Usd(1), [])
    assert after(epoch(), interrupted=True) == (None, Usd(1), [])
    for wrong, seconds, says in (
        (epoch(number=9), 0.0, "the epoch is charged in full"),
        (None, 9.0, "lost()"),
        (OSError("made"), 0.0, "raised OSError: made: the epoch is charged in full"),
    ):
        done, usd, (warned,) = after(wrong, seconds=seconds)
        assert (done, usd) == (None, ORDER.usd)
        assert says in warned
    with pytest.raises(ProviderError, match="of mlcd itself"):
        after(ProviderError("of mlcd itself"))


class Restoring(ToldFunctions):
    def restore(self, _run_id: str, _epochs: object) -> None:
        if isinstance(self.answer, BaseException):
            raise self.answer

    def parameters(self, _run_id: str, _number: int) -> Any:
        return self.answer


def test_what_is_restored_and_kept_is_the_providers_error_where_it_fails() -> None:
    CheckedFunctions(cloud=ToldFunctions(None)).restore("run", [])
    CheckedFunctions(cloud=Restoring(None)).restore("run", [])
    with pytest.raises(ProviderError, match=r"restore\(\) raised OSError: made"):
        CheckedFunctions(cloud=Restoring(OSError("made"))).restore("run", [])
    with pytest.raises(BadInput, match="of mlcd itself"):
        CheckedFunctions(cloud=Restoring(BadInput("of mlcd itself"))).restore("run", [])
    assert CheckedFunctions(cloud=ToldFunctions(None)).parameters("run", 1) is None
    with pytest.raises(ProviderError, match=r"parameters\(\): the answer: should be bytes"):
        CheckedFunctions(cloud=Restoring("text")).parameters("run", 1)


def test_a_job_that_trains_more_than_its_work_is_told_what_to_correct() -> None:
    cloud = Told(points=[(1.0, 1.0)], reached=300_096.0)
    lease = CheckedCloud(cloud=cloud, clock=lambda: cloud.now, most_samples=180_000.0).lease(Order(config=CONFIG))
    with lease, pytest.raises(LeaseFailed, match="trained 300,096 samples, and all of its work is 90,000: correct job"):
        lease.finish(next(lease.progress()))
