"""Nodes of several clouds behind one engine: each order goes to its place, and one that refuses leaves the others."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from mlcd.catalog import Instance, load_catalog
from mlcd.clouds.job import JobCloud, RealJob
from mlcd.clouds.nodes import Leftover, NodeEngine, NodeOrder, Nodes, NodesState
from mlcd.clouds.provider import LeaseFailed, Order
from mlcd.clouds.several import SeveralPlaces
from mlcd.clouds.skypilot import SkyPilotEngine
from mlcd.clouds.skypilot.task import make_task
from mlcd.errors import ProviderError
from mlcd.jobs.train import prepare
from mlcd.space import Config
from mlcd.space.placed import place_of
from mlcd.spec import parse_train
from mlcd.trial.trial import FailureKind

LARGE = replace(load_catalog().for_cloud("aws")["m5.large"], name="large")


class BrokenNodes:
    """Nodes whose cloud withdraws access."""

    def state(self) -> NodesState:
        raise ProviderError("the token has expired")

    def ask_to_stop(self) -> None: ...

    def used_seconds(self) -> float | None:
        return None

    def release(self) -> None: ...


@dataclass
class Engine:
    """A place that keeps what is ordered there."""

    name: str
    noise: float = 0.01
    refuses_offer: bool = False
    refuses_start: bool = False
    notes: tuple[str, ...] = ()
    started: list[NodeOrder] = field(default_factory=list)
    ended: list[Leftover] = field(default_factory=list)
    closed: int = 0

    def offer(self) -> tuple[Instance, ...]:
        if self.refuses_offer:
            raise ProviderError(f"{self.name}: no credentials; run: login {self.name}")
        return (LARGE,)

    def most_nodes(self, instance: str) -> int | None:
        return {"large": 7}[instance]

    def start(self, order: NodeOrder) -> Nodes:
        if self.refuses_start:
            raise ProviderError(f"{self.name}: access denied")
        self.started.append(order)
        return BrokenNodes()

    def leftovers(self) -> tuple[Leftover, ...]:
        return (Leftover(cloud=self.name, lease_id=f"mlcd-{self.name}", what="nodes"),)

    def end(self, leftover: Leftover) -> None:
        self.ended.append(leftover)

    def close(self) -> None:
        self.closed += 1


def order(instance: str, tmp_path: Path) -> NodeOrder:
    return NodeOrder(lease_id="mlcd-x-1", instance=instance, count=1, seconds=60.0, folder=tmp_path)


def several(**engines: Engine) -> SeveralPlaces:
    return SeveralPlaces(cast(dict[str, NodeEngine], engines))


def test_each_place_has_its_types_and_gets_its_orders(tmp_path: Path) -> None:
    here, there = Engine("here", notes=("prices of today",)), Engine("there", noise=0.2)
    both = several(here=here, there=there)
    assert [instance.name for instance in both.offer()] == ["large (here)", "large (there)"]
    assert (both.name, both.noise, both.most_nodes("large (there)")) == ("here,there", 0.2, 7)
    assert both.notes == ("here: prices of today",)
    both.start(order("large (there)", tmp_path))
    assert ([o.instance for o in here.started], [o.instance for o in there.started]) == ([], ["large"])
    left = both.leftovers()
    both.end(left[1])
    assert (here.ended, there.ended) == ([], [left[1]])
    both.close()
    assert (here.closed, there.closed) == (1, 1)


def test_a_place_without_credentials_is_excluded_with_what_it_lacks() -> None:
    both = several(here=Engine("here"), there=Engine("there", refuses_offer=True))
    assert [instance.name for instance in both.offer()] == ["large (here)"]
    assert both.notes == ("there is excluded: there: no credentials; run: login there",)
    neither = several(here=Engine("here", refuses_offer=True), there=Engine("there", refuses_offer=True))
    with pytest.raises(ProviderError, match="here: no credentials; run: login here; there: no credentials"):
        neither.offer()


@pytest.mark.parametrize("when", ["ordered", "later"])
def test_a_place_that_refuses_fails_its_lease_alone(when: str, tmp_path: Path) -> None:
    both = several(here=Engine("here"), there=Engine("there", refuses_start=when == "ordered"))
    cloud = JobCloud(both, RealJob(run="true"), home=tmp_path)
    lease = cloud.lease(Order(config=Config.deployment("large (there)", 1), run_id="r", seconds=60.0))
    with pytest.raises(LeaseFailed) as failed, lease as entered:
        list(entered.progress())
    # Nodes that were given and lost are paid for; those that were never given are not.
    assert (failed.value.kind, failed.value.billed) == (FailureKind.REFUSED, when == "later")


def test_the_only_cloud_that_refuses_ends_the_run(tmp_path: Path) -> None:
    cloud = JobCloud(cast(NodeEngine, Engine("only", refuses_start=True)), RealJob(run="true"), home=tmp_path)
    with (
        pytest.raises(ProviderError, match="only: access denied"),
        cloud.lease(Order(config=Config.deployment("large", 1), run_id="r", seconds=60.0)),
    ):
        pass


# ---- through SkyPilot, as its files say

JOB = """name: j
resources: {infra: [aws/us-west-2, aws/us-east-1, gcp], instance_type: [m5.large, n2-standard-4]}
num_nodes: 1
run: "true"
job: {samples: 1000, batch: 10}
goal: {minimize: cost}
"""


@pytest.fixture
def sky_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home with SkyPilot's files: its package, and its catalog of aws with two regions."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "KUBE", "SKY", "MLCD_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    package = tmp_path / "env/lib/python3.11/site-packages/sky"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setenv("MLCD_SKY_PYTHON", str(tmp_path / "env/bin/python"))
    monkeypatch.setattr("shutil.which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setenv("AWS_PROFILE", "me")
    catalog = tmp_path / ".sky/catalogs/v8/aws/vms.csv"
    catalog.parent.mkdir(parents=True)
    catalog.write_text("InstanceType,Price,SpotPrice,Region\nm5.large,0.111,,us-west-2\nm5.large,0.096,,us-east-1\n")
    return tmp_path


def test_regions_have_their_own_prices_and_a_cloud_without_credentials_is_left_out(sky_home: Path) -> None:
    prepared = prepare(parse_train(JOB), folder=sky_home / "mlcd")
    prices = {config.instance: prepared.problem.price(config).dollars for config in prepared.problem.space}
    assert prices == {"m5.large (aws/us-west-2)": 0.111, "m5.large (aws/us-east-1)": 0.096}
    assert any(note.startswith("gcp is excluded: gcp: no credentials for gcp") for note in prepared.notes)
    assert prepared.charged
    assert prepared.cloud == "aws/us-west-2,aws/us-east-1,gcp"


def test_only_types_of_a_cloud_without_credentials_are_a_refusal(sky_home: Path) -> None:
    text = JOB.replace("[m5.large, n2-standard-4]", "n2-standard-4")
    with pytest.raises(ProviderError, match="gcp: no credentials for gcp were found; run: gcloud auth"):
        prepare(parse_train(text), folder=sky_home / "mlcd")


def test_an_order_becomes_a_task_at_its_place(sky_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[SkyPilotEngine, NodeOrder]] = []
    monkeypatch.setattr(SkyPilotEngine, "start", lambda self, made: found.append((self, made)))
    both = SeveralPlaces({place: engine_at(place, sky_home) for place in ("aws/us-west-2", "gcp")})
    both.start(order("m5.large (aws/us-west-2)", tmp_path))
    (engine, made) = found[0]
    task = make_task(made, engine.settings, agent=tmp_path)
    assert task["resources"]["infra"] == "aws/us-west-2"
    assert task["resources"]["instance_type"] == "m5.large"


def engine_at(place: str, home: Path) -> NodeEngine:
    from mlcd.jobs.real import engine_for

    kind, _, rest = place.partition("/")
    return engine_for(kind, rest, home, parse_train(JOB))


def test_the_users_price_is_for_all_places_or_for_one(sky_home: Path) -> None:
    text = JOB.replace("instance_type: [m5.large", "prices: {m5.large: 0.5, 'm5.large (aws/us-east-1)': 0.2}, "
                       "instance_type: [m5.large")  # fmt: skip
    prepared = prepare(parse_train(text), folder=sky_home / "mlcd")
    prices = {place_of(c.instance): prepared.problem.price(c).dollars for c in prepared.problem.space}
    assert prices == {"aws/us-west-2": 0.5, "aws/us-east-1": 0.2}
