"""`knobs` of a training job: what can be written, and one clear line for what cannot."""

import pytest

from mlcd.errors import SpecError
from mlcd.space.settings import Condition, Setting
from mlcd.spec import TrainSpec, parse_train
from mlcd.spec.knob_presets import PRESETS

JOB = """name: tiny
resources: {infra: local}
run: python train.py
job: {samples: 100}
goal: {minimize: time}
"""


def read(knobs: str) -> TrainSpec:
    return parse_train(f"{JOB}knobs: {knobs}\n", file="job.yaml")


def test_values_are_lists_ranges_and_flags() -> None:
    spec = read("{precision: [fp32, bf16], micro_batch: [1, 2, 4], recompute: [true, false], workers: 0..3, lr: 0.5}")
    assert [(knob.name, knob.values) for knob in spec.knobs.knobs] == [
        ("precision", ("fp32", "bf16")),
        ("micro_batch", (1, 2, 4)),
        ("recompute", (True, False)),
        ("workers", (0, 1, 2, 3)),
        ("lr", (0.5,)),
    ]
    assert not any(knob.changes_learning or knob.when or knob.memory for knob in spec.knobs.knobs)


def test_the_long_form_says_what_a_knob_changes_and_when_it_applies() -> None:
    spec = read(
        "{sharding: [ddp, fsdp], dropout: {values: [0, 0.1], changes: learning},"
        " prefetch: {values: 1..2, memory: rises, when: {sharding: fsdp, num_nodes: 2..3}},"
        " exclude: [{sharding: fsdp, instance_type: 'c5.*'}]}"
    )
    assert spec.knobs.knobs[1] == Setting(name="dropout", values=(0, 0.1), changes_learning=True)
    when = Condition((("sharding", ("fsdp",)), ("num_nodes", (2, 3))))
    assert spec.knobs.knobs[2] == Setting(name="prefetch", values=(1, 2), memory="rises", when=when)
    assert spec.knobs.exclude == (Condition((("sharding", ("fsdp",)), ("instance_type", ("c5.*",)))),)


@pytest.mark.parametrize("name", PRESETS)
def test_every_ready_set_can_be_read_and_changed(name: str) -> None:
    spec = read(f"{{preset: {name}}}")
    assert list(spec.knobs.names) == list(PRESETS[name])
    last = spec.knobs.names[-1]
    own = read(f"{{preset: {name}, {last}: [7], extra: [1, 2]}}")
    assert own.knobs.names == (*spec.knobs.names, "extra")
    assert own.knobs.knobs[-2].values == (7,)


BAD = {
    "not a mapping": ("[1, 2]", "knobs: must be a mapping"),
    "nothing": ("{}", "knobs: names no knob"),
    "no values": ("{a: []}", "knobs.a: must not be empty"),
    "a value twice": ("{a: [1, 1]}", "knobs.a: has the value 1 twice"),
    "nested values": ("{a: [[1]]}", "knobs.a[0]: must be a number, text, true or false"),
    "the word for no value": ("{a: [unset]}", "knobs.a[0]: must be a line of text that is neither blank nor 'unset'"),
    "an empty range": ("{a: 3..1}", "knobs.a: is an empty range", "did you mean '1..3'?"),
    "a name that is no variable": ("{a-b: [1]}", "is not a variable's name"),
    "the batch": ("{batch: [1, 2]}", "knobs.batch: is chosen elsewhere in the job file"),
    "the path": ("{path: [1, 2]}", "knobs.path: would overwrite the variable PATH"),
    "one of mlcd's variables": ("{mlcd_rank: [1]}", "knobs.mlcd_rank: would overwrite the variable MLCD_RANK"),
    "the same in capitals": ("{a: [1], A: [2]}", "knobs.A: has the same variable in capitals as a"),
    "a long form without values": ("{a: {when: {b: 1}}, b: [1]}", "knobs.a.values: is missing"),
    "an unknown word": (
        "{a: {values: [1], affects: speed}}",
        "knobs.a.affects: unknown field",
        "did you mean 'changes'",
    ),
    "an unknown effect": ("{a: {values: [1], changes: loss}}", "knobs.a.changes: is not one of the choices"),
    "an unknown memory": ("{a: {values: [1], memory: up}}", "knobs.a.memory: is not one of the choices"),
    "a condition on an unknown knob": (
        "{a: {values: [1], when: {shardin: x}}, sharding: [x]}",
        "knobs.a.when.shardin: there is no such knob",
        "did you mean 'sharding'?",
    ),
    "a condition on an unknown value": (
        "{a: {values: [1], when: {b: fsdb}}, b: [ddp, fsdp]}",
        "knobs.a.when.b: b never has the value 'fsdb'",
        "did you mean 'fsdp'?",
    ),
    "a condition on itself": ("{a: {values: [1], when: {a: 1}}}", "knobs.a.when.a: is the knob itself"),
    "conditions in a circle": (
        "{a: {values: [1], when: {b: 2}}, b: {values: [2], when: {a: 1}}}",
        "knobs.a.when: the conditions of a, b depend on each other",
    ),
    "an empty condition": ("{a: {values: [1], when: {}}}", "knobs.a.when: has no condition"),
    "nodes that are none": ("{a: {values: [1], when: {num_nodes: 0}}}", "num_nodes: must be whole numbers"),
    "an exclusion of an unknown knob": ("{a: [1], exclude: [{b: 1}]}", "knobs.exclude[0].b: there is no such knob"),
    "an unknown ready set": ("{preset: fsdb}", "knobs.preset: is not one of the choices", "did you mean 'fsdp'?"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_line_with_its_place(case: str) -> None:
    knobs, *texts = BAD[case]
    with pytest.raises(SpecError) as caught:
        read(knobs)
    message = str(caught.value)
    assert message.startswith("job.yaml:6: ")
    assert "\n" not in message
    for text in texts:
        assert text in message, message
