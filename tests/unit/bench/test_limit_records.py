"""What README.md and docs/reliability.md say of limits follows from the records."""

import pytest
from final_speed import Group, groups
from guarantee import command


def test_a_group_counts_runs_without_a_training_apart() -> None:
    rows = [{"train_seconds": seconds, "predicted_seconds": 100.0} for seconds in (90.0, 111.0, 109.0, None)]
    found = Group.of("bed", rows)
    assert (len(found.ratios), found.untrained, found.over) == (3, 1, 1)
    assert found.cells == ["3", "1.090", "0.90 to 1.11", "1"]


def test_every_training_is_in_one_group() -> None:
    *some, every = groups()
    assert sum(len(group.ratios) for group in some) == len(every.ratios)
    assert sum(group.untrained for group in some) == every.untrained


@pytest.mark.parametrize(
    "words", [["--seed", "1", "-o", "json"], ["--seed", "1", "--record", "/tmp/x.json"], ["-o", "json", "--seed", "1"]]
)
def test_the_command_of_a_record_leaves_out_where_it_went(words: list[str]) -> None:
    assert command(words) == "benchmarks/guarantee.py --seed 1"
