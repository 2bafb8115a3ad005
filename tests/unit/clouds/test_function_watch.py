"""Running calls: which are repeated, which are continued, and what ends the epoch."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from mlcd.clouds.functions.lithops import watch as watching
from mlcd.clouds.functions.lithops.call import CallOrder, CallReport, ShardSource, Sync
from mlcd.clouds.functions.lithops.invoker import Answer
from mlcd.clouds.functions.lithops.objects import EpochTry
from mlcd.clouds.functions.lithops.watch import CallWatch, TooManyFailures, UntrainableModel
from mlcd.workloads.data import Layout

LAYOUT = Layout(dtype="|u1", row_shape=())
SOURCE = ShardSource(x_key="x", y_key="y", x=LAYOUT, y=LAYOUT, rows=8, held=1, model="logistic")


def order(shard: int) -> CallOrder:
    return CallOrder(
        epoch_try=EpochTry(run_id="r", epoch=1, token="t"),
        source=SOURCE,
        shard=shard,
        shards=4,
        attempt=1,
        start_key="",
        sync=Sync.HSP,
        share=1.0,
        batch=8,
        rate=1.0,
        seed=0,
        pushes=1,
        fan_in=1,
        seconds=900.0,
        memory_mb=512,
        most_puts=10,
        most_gets=20,
    )


def report(made: CallOrder, **changes: Any) -> CallReport:
    given: dict[str, Any] = {
        "shard": made.shard,
        "attempt": made.attempt,
        "steps": 1,
        "done": True,
        "closed": False,
        "seconds": 0.1,
        "fetch_seconds": 0.0,
        "compute_seconds": 0.1,
        "update_seconds": 0.0,
        "waited_seconds": 0.0,
        "cpu_seconds": 0.1,
        "peak_mb": 40.0,
        "puts": 2,
        "gets": 3,
    }
    return CallReport(**{**given, **changes})


class FakeCall:
    """Answers what `script` has for its (shard, attempt): an Answer, "never"; by default a report that it is done."""

    def __init__(self, made: CallOrder, script: dict[tuple[int, int], Any]) -> None:
        self.order, self._script = made, script
        self.job_key = "job"

    def answer(self) -> Answer | None:
        found = self._script.get((self.order.shard, self.order.attempt), Answer(value=report(self.order)))
        return None if found == "never" else found


def watch(
    script: dict[tuple[int, int], Any], *, shards: int = 4, repeats: int = 2, seconds: float = 30
) -> tuple[CallWatch, list[CallOrder]]:
    made: list[CallOrder] = []

    def invoke(orders: Sequence[CallOrder]) -> list[Any]:
        made.extend(orders)
        return [FakeCall(each, script) for each in orders]

    started = CallWatch(invoke, [order(n) for n in range(shards)], repeats=repeats, deadline=time.monotonic() + seconds)
    return started, made


def test_a_call_that_fails_is_repeated() -> None:
    script = {(1, 1): Answer(error="killed"), (2, 1): Answer(value=report(order(2), done=False, failed="no luck"))}
    seen, made = watch(script)
    seen.until_done(lambda: False)
    assert sorted((each.shard, each.attempt) for each in made) == [(0, 1), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]
    assert seen.repeated == 2
    assert sorted(ended.problem for ended in seen.ended if ended.problem) == ["killed", "no luck"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("seconds", float("nan")), ("puts", -1), ("cpu_seconds", "1"), ("gets", None), ("done", 1), ("failed", b"x")],
)
def test_a_report_that_cannot_be_counts_as_a_failure(field: str, value: object) -> None:
    seen, _ = watch({(1, 1): Answer(value=report(order(1), **{field: value}))})
    seen.until_done(lambda: False)
    assert seen.repeated == 1
    (problem,) = [ended.problem for ended in seen.ended if ended.problem]
    assert problem.startswith(f"the call's report is wrong: {field} should be")


def test_more_failures_than_authorised_end_the_epoch() -> None:
    seen, made = watch({(0, n): Answer(error=f"killed {n}") for n in (1, 2, 3)})
    with pytest.raises(TooManyFailures, match="killed 3"):
        seen.until_done(lambda: False)
    assert len(made) == 4 + 2


def test_a_call_whose_time_was_up_is_continued_and_is_no_failure() -> None:
    seen, made = watch({(3, 1): Answer(value=report(order(3), done=False))})
    seen.until_done(lambda: False)
    assert seen.repeated == 0
    rest = next(each for each in made if (each.shard, each.attempt) == (3, 2))
    assert (rest.most_puts, rest.most_gets) == (8, 17)


def test_a_call_that_lags_is_repeated_in_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LAG_SECONDS", 0.2)
    seen, made = watch({(2, 1): "never"})
    seen.until_done(lambda: False)
    assert [(each.shard, each.attempt) for each in made[4:]] == [(2, 2)]
    remaining = seen.abandon()
    assert [running.order.attempt for running in remaining] == [1]
    assert [ended.answer for ended in seen.ended if ended.order.attempt == 1 and ended.order.shard == 2] == [None]


def test_a_call_that_never_answers_is_awaited_until_the_deadline() -> None:
    seen, _ = watch({(n, 1): "never" for n in range(4)}, seconds=0.2)
    with pytest.raises(TimeoutError):
        seen.until_done(lambda: False)


def test_a_bug_in_the_model_is_not_retried() -> None:
    seen, made = watch({(0, 1): Answer(value=report(order(0), done=False, broken="NameError"))})
    with pytest.raises(UntrainableModel, match="NameError"):
        seen.until_done(lambda: False)
    assert len(made) == 4


def test_an_epoch_that_no_call_closed_gets_one_more_call() -> None:
    seen, made = watch({})
    seen.until_done(lambda: False)
    seen.again(order(0))
    assert (made[-1].shard, made[-1].attempt) == (0, 2)


def test_asp_is_over_before_all_are_done() -> None:
    seen, _ = watch({(2, 1): "never"})
    seen.until_done(lambda: True)
    assert [running.order.shard for running in seen.running] == [2]
