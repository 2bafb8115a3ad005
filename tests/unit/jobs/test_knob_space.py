"""The space of a training with knobs: what is in it, what is left out, and what a job cannot ask for."""

from pathlib import Path

import pytest

from mlcd import codec
from mlcd.errors import SpecError
from mlcd.jobs.knobs import unmentioned
from mlcd.jobs.train import prepare
from mlcd.problem import Problem
from mlcd.space import Config, Space
from mlcd.spec import TrainSpec, parse_train

JOB = """
name: tiny
workdir: .
resources: {infra: local}
num_nodes: 1..4
run: python train.py
knobs: {precision: [fp32, bf16], recompute: [false, true]}
job: {samples: 100}
goal: {minimize: time}
"""
LEARNS = "{samples: 100, target: {metric: loss, value: 0.1, better: lower}}"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty one with a script; the machine has four processors."""
    monkeypatch.setattr("mlcd.clouds.local.usable_cpus", lambda: (0, 1, 2, 3))
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass\n")
    return tmp_path


def parse(**changes: str) -> TrainSpec:
    lines = dict(line.partition(": ")[::2] for line in JOB.strip().splitlines()) | changes
    return parse_train("".join(f"{name}: {value}\n" for name, value in lines.items() if value))


def problem(**changes: str) -> Problem:
    return prepare(parse(**changes)).problem


def refusal(**changes: str) -> str:
    with pytest.raises(SpecError) as caught:
        problem(**changes)
    return str(caught.value)


def test_every_deployment_has_every_setting_at_the_deployments_price() -> None:
    with_knobs, without = problem(), problem(knobs="")
    assert len(with_knobs.space) == 4 * len(without.space)
    for config in with_knobs.space:
        deployment = Config.deployment(config.instance, config.nodes)
        assert with_knobs.price(config) == without.price(deployment)
    first = with_knobs.space.configs[0]
    assert first.settings == {"precision": "fp32", "recompute": False}
    assert str(first) == "1 x local.1, precision=fp32, recompute=false"


def test_settings_survive_the_store() -> None:
    space = problem(knobs="{a: {values: [1, 2], when: {b: true}, memory: rises}, b: [true, false]}").space
    again = codec.decode(codec.encode(space), Space)
    assert again == space
    assert again.settings == space.settings
    assert {type(config["b"]) for config in again} == {bool}


def test_a_knob_that_does_not_apply_has_no_value_and_no_combinations() -> None:
    knobs = "{sharding: [ddp, fsdp], prefetch: {values: [1, 2, 3], when: {sharding: fsdp}}}"
    configs = [config for config in problem(knobs=knobs).space if config.instance == "local.4"]
    assert [config.settings for config in configs] == [
        {"sharding": "ddp"},
        *({"sharding": "fsdp", "prefetch": prefetch} for prefetch in (1, 2, 3)),
    ]
    assert str(configs[0]) == "1 x local.4, sharding=ddp"


def test_conditions_may_name_the_machine() -> None:
    knobs = "{a: {values: [1, 2], when: {instance_type: 'local.[24]', num_nodes: 1}}, exclude: [{num_nodes: 3..4}]}"
    found = {(config.instance, config.nodes, config.settings.get("a")) for config in problem(knobs=knobs).space}
    assert found == {
        ("local.1", 1, None),
        ("local.1", 2, None),
        ("local.2", 1, 1),
        ("local.2", 1, 2),
        ("local.2", 2, None),
        ("local.4", 1, 1),
        ("local.4", 1, 2),
    }


def test_an_exclusion_leaves_out_what_cannot_be_and_says_so() -> None:
    prepared = prepare(parse(knobs="{p: [fp32, bf16], m: [1, 8], exclude: [{m: 8, p: fp32}, {m: 8, p: bf16}]}"))
    assert {config["m"] for config in prepared.problem.space} == {1}
    assert "knobs.m: 8 never occur under the conditions and are excluded" in prepared.notes


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"knobs": "{a: {values: [1], when: {b: 1}}, b: [1, 2], exclude: [{b: 1}]}"},
            "knobs.a: never applies: its condition (b: 1) contradicts the other conditions",
        ),
        ({"knobs": "{a: [1, 2], exclude: [{a: [1, 2]}]}"}, "knobs.exclude: excludes every combination"),
        ({"knobs": "{a: 1..1000, b: 1..1000}"}, "knobs: makes 1,000,000 configurations"),
        ({"knobs": "{a: {values: [1, 2], changes: learning}}"}, "knobs.a: changes learning, so the same samples give"),
        (
            {"knobs": "{a: {values: 1..17, changes: learning}}", "job": LEARNS},
            "knobs: the knobs that change learning (a) have 17 combinations",
        ),
        (
            {
                "knobs": "{a: {values: [1, 2], changes: learning}}",
                "job": LEARNS,
                "search": "{work: kept}",
                "checkpoints": "true",
            },
            "search.work: trials with other learning (a) cannot continue one training",
        ),
        ({"envs": "{PRECISION: fp64}"}, "knobs.precision: is also a variable of envs"),
        ({"search": "{strategy: paleo}"}, "search.strategy: paleo does not search knobs"),
        ({"resources": "{infra: sim/aws}", "job": "{samples: 9, model: resnet152}"}, "knobs: only works on real nodes"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, str], text: str) -> None:
    assert text in refusal(**changes)


def test_knobs_that_change_learning_are_told_apart_and_their_trials_start_afresh() -> None:
    knobs = "{lr: {values: [0.1, 0.2], changes: learning}, precision: [fp32, bf16]}"
    found = problem(knobs=knobs, job=LEARNS, checkpoints="true")
    assert found.learning == ("lr",)
    assert not found.keeps_work
    assert not found.beside
    assert codec.decode(codec.encode(found), Problem).learning == ("lr",)


def test_a_knob_counts_as_used_where_commands_or_the_script_name_its_variable(folder: Path) -> None:
    knobs = "{a: [1], b: [1], c: [1], d: [1], OMP_NUM_THREADS: [1], e: [1]}"
    script = "import os\nos.environ['C'], os.environ.get('d', '')\nmlcd.knob('e', 1)\n"
    (folder / "train.py").write_text(script)
    spec = parse(knobs=knobs, run="python train.py --a $a --b ${B} --not-e $example")
    assert unmentioned(spec, folder) == ("e",)
