"""A job over several clouds: one space whose types say where they are, and clear refusals of what cannot be."""

from pathlib import Path

import pytest

from mlcd.catalog import load_catalog
from mlcd.errors import BadInput, SpecError
from mlcd.jobs.down import leftovers
from mlcd.jobs.prepared import begin, continue_run
from mlcd.jobs.recorded_spec import stored_spec
from mlcd.jobs.train import prepare
from mlcd.problem import Problem
from mlcd.report.verdict import verdict
from mlcd.run.run import SearchRun
from mlcd.space.placed import place_of
from mlcd.spec import parse_train, with_overrides
from mlcd.spec.serving import SERVE
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.trial.trial import FailureKind

JOB = "name: j\njob: {model: resnet152, samples: 50000}\ngoal: {minimize: cost}\nnum_nodes: 1..2\n"


@pytest.fixture(autouse=True)
def _no_catalog_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLCD_CATALOG", raising=False)


def problem(resources: str, more: str = "") -> Problem:
    return prepare(parse_train(f"{JOB}{more}resources: {resources}\n", file="job.yaml")).problem


def types(found: Problem) -> set[str]:
    return {config.instance for config in found.space}


def test_types_of_every_cloud_are_in_one_space_at_the_prices_of_their_cloud() -> None:
    found = problem("{infra: [sim/aws, sim/gcp], instance_type: [g6.xlarge, g2-standard-4]}")
    assert types(found) == {"g6.xlarge (aws)", "g2-standard-4 (gcp)"}
    catalog = load_catalog()
    for config in found.space:
        cloud = place_of(config.instance)
        plain = config.instance.partition(" ")[0]
        assert found.price(config) == catalog.for_cloud(cloud)[plain].usd_per_hour * config.nodes


def test_without_names_each_cloud_gives_its_own_default_types() -> None:
    both = types(problem("{infra: [sim/aws, sim/gcp]}"))
    alone = {f"{name} (aws)" for name in types(problem("{infra: sim/aws}"))}
    assert {name for name in both if place_of(name) == "aws"} == alone
    assert {place_of(name) for name in both} == {"aws", "gcp"}


def test_accelerators_in_two_clouds_have_the_same_features_but_for_price_and_size() -> None:
    found = problem("{infra: [sim/aws, sim/gcp], accelerators: L4:1}")
    kinds = found.space.encoding.kind
    assert len(types(found)) > 1
    assert len(set(kinds.tolist())) == 1


def test_on_takes_a_list_with_commas() -> None:
    spec = with_overrides(parse_train(f"{JOB}resources: {{accelerators: L4:1}}\n"), on="sim/aws, sim/gcp")
    prepared = prepare(spec)
    assert {place_of(name) for name in types(prepared.problem)} == {"aws", "gcp"}
    assert prepared.cloud == "sim/aws,sim/gcp"


def test_node_counts_may_be_given_by_place() -> None:
    text = JOB.replace("num_nodes: 1..2", 'num_nodes: {default: 1, "* (gcp)": 4, g6.*: 3}')
    found = prepare(
        parse_train(f"{text}resources: {{infra: [sim/aws, sim/gcp], instance_type: [g6.xlarge, g2-standard-4]}}\n")
    ).problem
    assert {str(config) for config in found.space} == {"3 x g6.xlarge (aws)", "4 x g2-standard-4 (gcp)"}


@pytest.mark.parametrize(
    ("resources", "field_name", "says"),
    [
        ("{infra: [sim/aws, sim/gpc]}", "resources.infra[1]", "did you mean 'sim/gcp'?"),
        ("{infra: [sim/aws, sim/aws]}", "resources.infra[1]", "names sim/aws twice"),
        ("{infra: []}", "resources.infra", "must not be empty"),
        ("{infra: 'sim/aws,'}", "resources.infra", "empty name"),
        ("{infra: [sim/aws, aws]}", "resources.infra[1]", "all are simulated, or none is"),
        ("{infra: [aws, local]}", "resources.infra[1]", "local cannot be one of several clouds"),
        ("{infra: [sim/aws, replay/tables]}", "resources.infra[1]", "measured tables cannot be one of several"),
        ("{infra: [aws, gcp], region: us-east-1}", "resources.region", "is of one cloud"),
        ("{infra: [sim/aws, sim/gcp], instance_type: [g6.xlarge, g6.xlarg]}", "resources.instance_type[1]", "none of"),
        ("{infra: [sim/aws, sim/gcp], instance_type: Standard_D4s_v5}", "resources.instance_type", "none of aws, gcp"),
        ("{infra: [sim/aws, sim/gcp], accelerators: GB300}", "resources.accelerators", "has this accelerator"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(resources: str, field_name: str, says: str) -> None:
    with pytest.raises(SpecError, match="resources") as refused:
        problem(resources, more="run: 'true'\n")
    assert (refused.value.field, refused.value.line) == (field_name, 6)
    assert says in str(refused.value)


def test_a_mistake_in_on_names_the_flag() -> None:
    spec = with_overrides(parse_train(JOB), on="sim/aws,sim/gpc")
    with pytest.raises(SpecError, match=r"--on: there is no such cloud .got 'sim/gpc'.*did you mean 'sim/gcp'"):
        prepare(spec)


def test_a_region_without_prices_is_refused_with_those_that_have_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKY_RUNTIME_DIR", str(tmp_path))
    text = f"{JOB}run: 'true'\nresources: {{infra: [gcp, aws/us-west-2]}}\n"
    with pytest.raises(SpecError, match=r"us-west-2 of aws .*us-east-1; SkyPilot's catalog has more: sky check aws"):
        prepare(parse_train(text, file="job.yaml"))
    file = tmp_path / ".sky/catalogs/v8/aws/vms.csv"
    file.parent.mkdir(parents=True)
    file.write_text("InstanceType,Price,SpotPrice,Region\nm5.large,0.1,,us-west-1\nm5.large,0.1,,eu-west-1\n")
    with pytest.raises(SpecError, match=r"us-west-2 of aws .*did you mean 'aws/us-west-1'") as refused:
        prepare(parse_train(text, file="job.yaml"))
    assert (refused.value.field, refused.value.line) == ("resources.infra[1]", 6)


def test_a_simulated_cloud_that_refuses_leaves_the_other(tmp_path: Path) -> None:
    run = driven(tmp_path, "sim/aws,sim/gcp/no-access")
    refused = [trial for trial in run.history.failures if trial.kind is FailureKind.REFUSED]
    assert [place_of(trial.config.instance) for trial in refused] == ["gcp"]  # asked once, and never again
    assert run.status is Status.DONE
    assert run.choice is not None
    assert place_of(run.choice.config.instance) == "aws"
    left_out = [each.text for each in run.train_findings.rejected if each.text.startswith("not tried: gcp")]
    assert left_out == ["not tried: gcp refused to give nodes"]


def test_when_all_refuse_the_run_ends_with_exit_code_7(tmp_path: Path) -> None:
    run = driven(tmp_path, "sim/aws/no-access,sim/gcp/no-access")
    assert (run.status, run.status.exit_code, len(run.trials), run.spent.micros) == (Status.REFUSED, 7, 2, 0)
    assert "Every cloud of the job refused" in verdict(run)


def test_no_capacity_anywhere_is_not_a_refusal_of_the_cloud(tmp_path: Path) -> None:
    run = driven(tmp_path, "sim/aws/no-capacity,sim/gcp/no-capacity")
    assert run.status is Status.ALL_FAILED


def driven(home: Path, on: str) -> SearchRun:
    text = f"{JOB}resources: {{instance_type: [g6.xlarge, g2-standard-4]}}\nsearch: {{max_trials: 5}}\n"
    prepared = prepare(with_overrides(parse_train(text), on=on))
    with Store(home) as store:
        return begin(prepared, store=store)


@pytest.mark.parametrize("infra", ["[aws, gcp]", "'aws,gcp'"])
def test_only_trainings_have_several_clouds(infra: str) -> None:
    text = f"name: j\nmodel: resnet18\nresources: {{infra: {infra}}}\ngoal: {{minimize: cost}}\n"
    with pytest.raises(SpecError, match=r"job.yaml:3: resources.infra: takes one cloud: several in one"):
        SERVE.parse(text, file="job.yaml")


def test_down_looks_at_each_cloud_of_a_list(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--on: there is no such cloud .got 'local,gpc'.; .*did you mean 'gcp'"):
        leftovers(tmp_path, on="local,gpc")
    assert leftovers(tmp_path, on="local,local/x") == ((), ())


def test_a_search_that_was_killed_goes_on_with_the_same_places(tmp_path: Path) -> None:
    text = f"{JOB}resources: {{infra: [sim/aws, sim/gcp/no-access], instance_type: [g6.xlarge, g2-standard-4]}}\n"
    prepared = prepare(parse_train(text))
    with Store(tmp_path) as store:
        searched = begin(prepared, store=store, search_only=True)
        again = prepare(stored_spec(store.spec(searched.run_id)))
        assert again.problem.space.configs == prepared.problem.space.configs
        run = continue_run(searched, again, store=store)
    assert run.status is Status.DONE
    assert run.trials == searched.trials
