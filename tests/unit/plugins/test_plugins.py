"""Plug-ins: found by entry points, refused by package name, independent of each other; objects instead of names."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from tests.synthetic import Listed, SyntheticCloud

from mlcd.catalog import Instance
from mlcd.cli.main import run
from mlcd.clouds.job import JobCloud
from mlcd.clouds.local import Local
from mlcd.clouds.nodes import Leftover
from mlcd.clouds.plugin import CloudJob, CloudOffer
from mlcd.clouds.provider import Cloud
from mlcd.deciders.epochs import EpochDecider
from mlcd.deciders.search import SearchDecider
from mlcd.engine.on_nodes import NodePerformer
from mlcd.errors import BadInput, SpecError
from mlcd.functions import FunctionProblem
from mlcd.jobs.down import end_all, leftovers
from mlcd.jobs.given import serve_spec
from mlcd.jobs.prepared import Prepared
from mlcd.jobs.serverless import check_scheduler, stored_spec, with_scheduler
from mlcd.jobs.serverless import prepare as prepare_functions
from mlcd.jobs.train import check_objects, prepare, with_objects
from mlcd.plugins import CLOUDS, SCHEDULERS, STRATEGIES, load, name_or_object, plugin_names, plugins
from mlcd.problem import Problem
from mlcd.schedulers.registry import scheduler
from mlcd.search.registry import strategy
from mlcd.spec import parse_train
from mlcd.spec.functions import parse_serverless
from mlcd.trial.epoch import Epoch, Fleet, RemainingEpochs
from mlcd.units import Usd

Install = Callable[..., None]

GOOD = """
from dataclasses import dataclass
from typing import ClassVar
from mlcd.schedulers.static import Static
from mlcd.search.random import Random

@dataclass(frozen=True, kw_only=True)
class Mine(Random):
    name: ClassVar[str] = "mine"
    boldness: float = 1.0

@dataclass(frozen=True, kw_only=True)
class Ours(Static):
    name: ClassVar[str] = "ours"

class Bare:
    name = "bare"
    def suggest(self): ...

class NoSeed:
    name, guarded, suggest, recommend, ending = "no-seed", True, None, None, None
"""

TRAIN = """
name: t
resources: {infra: sim/aws, instance_type: [c5.xlarge, c5.2xlarge]}
num_nodes: 1..4
job: {model: resnet50, samples: 1e6}
goal: {minimize: time}
"""

FUNCTIONS = """
name: f
resources: {infra: sim/lambda}
workload: {model: logistic, target_loss: 0.4}
goal: {minimize: time, budget: 5 USD}
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Writes a package with entry points, {group: {name: target}}, as an installer would."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def made(package: str, points: Mapping[str, Mapping[str, str]], **modules: str) -> None:
        info = tmp_path / f"{package.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        lines = [f"[{group}]\n" + "".join(f"{n} = {t}\n" for n, t in found.items()) for group, found in points.items()]
        (info / "entry_points.txt").write_text("\n".join(lines))
        for name, code in modules.items():
            (tmp_path / f"{name}.py").write_text(code)

    return made


def test_a_strategy_and_a_scheduler_are_found_by_name_with_options(install: Install) -> None:
    install(
        "mlcd-mine",
        {STRATEGIES: {"mine": "good_plugin_1:Mine"}, SCHEDULERS: {"ours": "good_plugin_1:Ours"}},
        good_plugin_1=GOOD,
    )
    made = strategy("mine:boldness=2.5,steps=3", seed=4)
    assert (made.name, made.boldness, made.steps, made.seed) == ("mine", 2.5, 3, 4)  # type: ignore[attr-defined]
    fixed = scheduler("ours:functions=4,memory=512", seed=1)
    assert (fixed.name, fixed.functions) == ("ours", 4)  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match=r"mine has no option 'boldnes=1'.*did you mean 'boldness'"):
        strategy("mine:boldnes=1")
    with pytest.raises(BadInput, match=r"unknown strategy 'mime'; allowed: auto.*, mine; did you mean 'mine'\?"):
        strategy("mime")
    with pytest.raises(BadInput, match=r"unknown scheduler 'our'; allowed: .*, ours; did you mean 'ours'\?"):
        scheduler("our")


def test_a_plug_in_that_cannot_be_imported_is_named_and_hides_no_other(install: Install) -> None:
    install("mlcd-broken", {STRATEGIES: {"broken": "broken_plugin:It"}}, broken_plugin="raise RuntimeError('no GPU')")
    install("mlcd-lost", {STRATEGIES: {"lost": "no_such_module_here:It"}})
    install("mlcd-exits", {STRATEGIES: {"exits": "exit_plugin:It"}}, exit_plugin="raise SystemExit(3)")
    install("mlcd-fine", {STRATEGIES: {"mine": "good_plugin_2:Mine"}}, good_plugin_2=GOOD)
    assert {"broken", "lost", "mine"} <= set(plugin_names(STRATEGIES))
    assert strategy("mine").name == "mine"
    with pytest.raises(BadInput, match=r"mlcd-exits 1\.2: strategy 'exits' .*cannot be imported: SystemExit: 3"):
        strategy("exits")
    with pytest.raises(
        BadInput, match=r"mlcd-broken 1\.2: strategy 'broken' .*cannot be imported: RuntimeError: no GPU"
    ):
        strategy("broken")
    with pytest.raises(BadInput, match=r"mlcd-lost 1\.2: .*ModuleNotFoundError"):
        strategy("lost")
    with pytest.raises(BadInput, match=r"unknown strategy 'minne'"):
        strategy("minne")


def test_a_plug_in_that_is_no_strategy_is_refused(install: Install) -> None:
    install(
        "mlcd-bare", {STRATEGIES: {"bare": "good_plugin_3:Bare", "no-seed": "good_plugin_3:NoSeed"}}, good_plugin_3=GOOD
    )
    with pytest.raises(BadInput, match=r"'bare' \(good_plugin_3:Bare\) lacks guarded, recommend, ending"):
        strategy("bare")
    with pytest.raises(BadInput, match=r"'no-seed' .* must be a dataclass with a field seed"):
        strategy("no-seed")


def test_no_plug_in_shadows_a_built_in_or_another(install: Install) -> None:
    install("mlcd-shadow", {STRATEGIES: {"heterbo": "good_plugin_4:Mine"}}, good_plugin_4=GOOD)
    for package in ("mlcd-one", "mlcd-two"):
        install(package, {STRATEGIES: {"twice": "good_plugin_4:Mine"}})
    assert type(strategy("heterbo")).__module__ == "mlcd.search.heterbo"
    found = {(p.package, p.name): p.problem for p in plugins(STRATEGIES, built_in={"heterbo"})}
    assert "built into mlcd; a plug-in must use another name" in found["mlcd-shadow 1.2", "heterbo"]
    with pytest.raises(BadInput, match=r"mlcd-shadow 1.2: strategy 'heterbo' is built into mlcd"):
        load(STRATEGIES, "heterbo", built_in={"heterbo"})
    with pytest.raises(BadInput, match=r"more than one package.*'twice': mlcd-one 1.2, mlcd-two 1.2; uninstall"):
        strategy("twice")


# ---- clouds


class Own:
    """Two types on the synthetic cloud of the tests."""

    def __init__(self) -> None:
        self.jobs: list[CloudJob] = []

    def prepare(self, job: CloudJob) -> CloudOffer:
        self.jobs.append(job)
        types = tuple(
            Instance(cloud="own", name=name, vcpus=4, memory_gib=8, network_gbps=1, usd_per_hour=Usd.of(price))
            for name, price in (("c5.small", 0.17), ("c5.big", 0.68))
        )
        cloud = SyntheticCloud(noise=0.02, seed=job.seed)
        return CloudOffer(cloud=cloud, instances=types, most_nodes={"c5.big": 3}, charged=False, notes=("A note.",))


CLOUD = "from tests.unit.plugins.test_plugins import Own as MyCloud\nmade = MyCloud()\nbad = object()\n"


def test_a_cloud_is_found_by_name(install: Install) -> None:
    points = {"own": "cloud_plugin_1:made", "own-class": "cloud_plugin_1:MyCloud", "bad": "cloud_plugin_1:bad"}
    install("mlcd-own", {CLOUDS: points}, cloud_plugin_1=CLOUD)
    spec = parse_train(TRAIN.replace("sim/aws, instance_type: [c5.xlarge, c5.2xlarge]", "own/eu/a"))
    prepared = prepare(spec, seed=7)
    assert {(c.instance, c.nodes) for c in prepared.problem.space} == {
        *(("c5.small", n) for n in (1, 2, 3, 4)),
        *(("c5.big", n) for n in (1, 2, 3)),
    }
    assert prepared.problem.usd_per_hour[0] == Usd.of("0.17")
    assert prepared.problem.noise == 0.02
    assert prepared.notes == ("A note.", "own has room for at most 3 x c5.big: more are excluded")
    assert not prepared.charged
    from cloud_plugin_1 import made  # type: ignore[import-not-found]

    job = made.jobs[-1]
    assert (job.name, job.where, job.seed, job.samples) == ("t", "eu/a", 7, 1e6)
    named = parse_train(TRAIN.replace("sim/aws", "own-class").replace("c5.xlarge, c5.2xlarge", "c5.small"))
    assert {c.instance for c in prepare(named).problem.space} == {"c5.small"}
    with pytest.raises(SpecError, match=r"own-class has no such type \(got 'c5.tiny'\); allowed: c5.small, c5.big"):
        prepare(parse_train(TRAIN.replace("sim/aws", "own-class").replace("c5.xlarge, c5.2xlarge", "c5.tiny")))
    with pytest.raises(BadInput, match=r"mlcd-own 1\.2: cloud 'bad' .* lacks prepare"):
        prepare(parse_train(TRAIN.replace("sim/aws", "bad")))
    with pytest.raises(SpecError, match=r"no such cloud.*own-class.*did you mean 'own-class'\?"):
        prepare(parse_train(TRAIN.replace("sim/aws", "own-clas")))


@contextmanager
def connected(prepared: Prepared[Problem]) -> Iterator[Cloud]:
    """The cloud on which the steps of the job would run."""
    with ExitStack() as leaving:
        performer = prepared.connect(prepared.problem, leaving)
        assert isinstance(performer, NodePerformer)
        yield performer.cloud


class OnNodes:
    """A plug-in that only starts nodes."""

    def prepare(self, job: CloudJob) -> Local:
        return Local(job.folder, cpus=(0, 0))


def test_a_plug_in_may_give_nodes_and_mlcd_runs_the_job_there(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("mlcd-nodes", {CLOUDS: {"my-nodes": f"{__name__}:OnNodes", "lost": "no_such_module_here:It"}})
    spec = parse_train("name: t\nresources: {infra: my-nodes}\nrun: 'true'\ngoal: {minimize: time}\n")
    prepared = prepare(spec, folder=tmp_path)
    with connected(prepared) as cloud:
        assert isinstance(cloud, JobCloud)
        assert isinstance(cloud.engine, Local)
    assert prepared.charged
    remaining = Leftover(cloud="my-nodes", lease_id="mlcd-x", what="1 process")
    ended: list[Leftover] = []
    monkeypatch.setattr(Local, "leftovers", lambda self: (remaining,))
    monkeypatch.setattr(Local, "end", lambda self, found: ended.append(found))
    assert leftovers(tmp_path, on="my-nodes") == ((remaining,), ())
    assert end_all(tmp_path, (remaining,)) == ()
    assert ended == [remaining]
    with pytest.raises(BadInput, match=r"mlcd-nodes 1\.2: cloud 'lost'"):
        leftovers(tmp_path, on="lost")
    monkeypatch.setattr("mlcd.jobs.down.EVERYWHERE", ())
    found, silent = leftovers(tmp_path)
    assert found == (remaining,)
    assert [kind for kind, _ in silent] == ["lost"]


class Broken:
    """Nodes of a plug-in: each method raises this, or returns it."""

    name = "broken"

    def __init__(self, does: object) -> None:
        self.does = does

    def prepare(self, job: CloudJob) -> "Broken":
        return self

    def start(self) -> None: ...

    def leftovers(self) -> object:
        if isinstance(self.does, BaseException):
            raise self.does
        return self.does

    unproved = sweep = close = leftovers

    def end(self, leftover: Leftover) -> None:
        self.leftovers()


BAD_LEASE = (Leftover(cloud="broken", lease_id=7, what="x"),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "does",
    [
        ValueError("no GPU"),
        SystemExit(0),
        RecursionError(),
        None,
        7,
        "text",
        (None,),
        ({"cloud": "broken"},),
        BAD_LEASE,
    ],
    ids=repr,
)
def test_whatever_a_cloud_of_a_plug_in_does_the_others_are_searched_and_ended(
    install: Install,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    does: object,
) -> None:
    install("mlcd-broken-cloud", {CLOUDS: {"broken": f"{__name__}:Broken"}})
    monkeypatch.setattr("mlcd.jobs.down.plugin_engine", lambda *_: Broken(does))
    monkeypatch.setattr("mlcd.jobs.down.EVERYWHERE", ("local",))
    monkeypatch.setenv("MLCD_HOME", str(tmp_path))
    here, there = (Leftover(cloud=name, lease_id="mlcd-x", what="1 process") for name in ("local", "broken"))
    ended: list[Leftover] = []
    monkeypatch.setattr(Local, "leftovers", lambda _self: (here,))
    monkeypatch.setattr(Local, "end", lambda _self, found: ended.append(found))
    assert run(["down", "-y", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (ended, [one["cloud"] for one in answer["found"]]) == ([here], ["local"])
    assert answer["not_looked"]["broken"].startswith("the plug-in of broken failed: ")
    failed = end_all(tmp_path, (there, here))
    assert ended == [here, here]
    assert [one for one, _ in failed] == ([there] if isinstance(does, BaseException) else [])
    assert run(["down", "-y", "--on", "broken"]) == 7


def test_a_plug_in_on_a_built_in_engine_lists_nothing_twice(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("mlcd-nodes-too", {CLOUDS: {"my-nodes-too": f"{__name__}:OnNodes"}})
    monkeypatch.setattr("mlcd.jobs.down.EVERYWHERE", ("local",))
    monkeypatch.setattr(Local, "leftovers", lambda _self: (Leftover(cloud="local", lease_id="mlcd-x", what="1"),))
    assert [one.cloud for one in leftovers(tmp_path)[0]] == ["local"]
    assert [one.cloud for one in leftovers(tmp_path, on="my-nodes-too")[0]] == ["my-nodes-too"]


def test_an_offer_has_types_each_once() -> None:
    offer = Own().prepare(CloudJob(name="t"))
    with pytest.raises(ValueError, match=r"at least one instance type"):
        CloudOffer(cloud=offer.cloud, instances=())
    with pytest.raises(ValueError, match=r"each instance type once"):
        CloudOffer(cloud=offer.cloud, instances=(*offer.instances, *offer.instances))


# ---- objects instead of names


class Fixed:
    """One fleet, always."""

    name: ClassVar[str] = "fixed"

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> Fleet | None:
        return Fleet(problem.functions[0], problem.memory_mb[0])

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:
        return "it is over"

    def smallest_budget(
        self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
    ) -> Usd | None:
        return None


@dataclass(frozen=True, kw_only=True)
class Other(Listed):
    """Another class."""


def test_a_training_takes_objects_and_is_recorded_with_their_names() -> None:
    spec = parse_train(TRAIN.replace("c5.xlarge, c5.2xlarge", "c5.small"))
    mine, own = Listed(configs=()), Own()
    prepared = prepare(spec, strategy=mine, cloud=own, seed=2)
    assert isinstance(prepared.decider, SearchDecider)
    assert prepared.decider.strategy is mine
    assert prepared.strategy == "python:tests.synthetic:Listed"
    assert prepared.cloud == "synthetic"
    recorded = with_objects(spec, strategy=mine, cloud=own)
    assert recorded.search.strategy == "python:tests.synthetic:Listed"
    assert recorded.resources.infra == f"python:{__name__}:Own"
    assert dict(recorded.overrides) == {"strategy": recorded.search.strategy, "on": recorded.resources.infra}
    check_objects(recorded, strategy=mine, cloud=own)
    check_objects(spec)
    with pytest.raises(BadInput, match=r"strategy: this run was started with an object: .*strategy=Listed\(\.\.\.\)"):
        check_objects(recorded, cloud=own)
    with pytest.raises(BadInput, match=r"on: this run was started with an object: .*on=Own\(\.\.\.\)"):
        check_objects(recorded, strategy=mine)
    with pytest.raises(BadInput, match=rf"cannot continue with python:{__name__}:Other"):
        check_objects(recorded, strategy=Other(configs=()), cloud=own)
    with pytest.raises(BadInput, match=r"strategy: this run was started with 'auto'; .*omit strategy"):
        check_objects(spec, strategy=mine)
    with pytest.raises(SpecError, match=r"python:tests.synthetic:Listed is an object that only Python can pass"):
        prepare(recorded, cloud=own)
    with pytest.raises(SpecError, match=rf"python:{__name__}:Own is an object that only Python can pass"):
        prepare(recorded, strategy=mine)


def test_an_object_of_the_wrong_kind_is_refused() -> None:
    spec = parse_train(TRAIN)
    with pytest.raises(BadInput, match=r"strategy: .* has no method suggest\(\)"):
        prepare(spec, strategy=object())  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"on: .* has no method prepare\(\)"):
        prepare(spec, cloud=SyntheticCloud())  # type: ignore[arg-type]


def test_a_serverless_job_takes_a_scheduler_object() -> None:
    spec = parse_serverless(FUNCTIONS)
    fixed = Fixed()
    prepared = prepare_functions(spec, strategy=fixed)
    assert isinstance(prepared.decider, EpochDecider)
    assert prepared.decider.scheduler is fixed
    assert prepared.strategy == f"python:{__name__}:Fixed"
    recorded = with_scheduler(spec, fixed)
    assert recorded.search.strategy == f"python:{__name__}:Fixed"
    assert stored_spec(prepared.spec).search.strategy == recorded.search.strategy
    check_scheduler(recorded, fixed)
    check_scheduler(spec, None)
    with pytest.raises(BadInput, match=r"started with an object"):
        check_scheduler(recorded, None)
    with pytest.raises(SpecError, match=r"only Python can pass"):
        prepare_functions(recorded)
    with pytest.raises(BadInput, match=r"has no method decide\(\)"):
        prepare_functions(spec, strategy=object())  # type: ignore[arg-type]


def test_serving_takes_a_strategy(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from tests.tiny_onnx import write_mlp

    from mlcd.jobs.serve import check_strategy, with_strategy
    from mlcd.jobs.serve import prepare as prepare_serving

    spec = serve_spec(str(write_mlp(tmp_path / "m.onnx")), slo="p99=50ms")
    mine = Listed(configs=())
    prepared = prepare_serving(spec, strategy=mine, folder=tmp_path)
    assert isinstance(prepared.decider, SearchDecider)
    assert prepared.decider.strategy is mine
    assert prepared.strategy == "python:tests.synthetic:Listed"
    recorded = with_strategy(spec, mine)
    assert recorded.search.strategy == "python:tests.synthetic:Listed"
    check_strategy(recorded, mine)
    with pytest.raises(BadInput, match=r"strategy: this run was started with an object"):
        check_strategy(recorded, None)
    with pytest.raises(SpecError, match=r"only Python can pass"):
        prepare_serving(recorded, folder=tmp_path)


def test_an_argument_is_a_name_or_an_object() -> None:
    mine = Listed(configs=())
    assert name_or_object("heterbo") == ("heterbo", None)
    assert name_or_object(mine) == (None, mine)
    assert name_or_object(None) == (None, None)
