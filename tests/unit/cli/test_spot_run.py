"""`use_spot: any` from the command line: the verdict has a row for each way to buy a machine."""

import re
from pathlib import Path

import pytest

from mlcd.cli.main import run

JOB = """\
name: spotty
resources: {infra: sim/aws, instance_type: ["g5.*", "g6.*"], use_spot: any}
num_nodes: 1..8
job: {model: resnet152, samples: 50000, epochs: 90}
checkpoints: true
goal: {minimize: cost, deadline: 24h, budget: 200}
search: {max_trials: 2}
"""


def test_a_machine_that_was_measured_on_one_market_has_its_speed_on_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict ended with a KeyError: plans of the other market have no trial of their own."""
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    (tmp_path / "job.yaml").write_text(JOB)
    assert run(("train", str(tmp_path / "job.yaml"), "--seed", "0")) == 0, capsys.readouterr().err
    table = re.split(r"\nTop \d", capsys.readouterr().out)[1].split("\n\n")[0]
    markets: dict[str, set[str]] = {}
    for machine, market, speed in re.findall(r"  (\d+ x \S+) \((spot|on-demand)\) +([\d.,]+) ", table):
        markets.setdefault(f"{machine} at {speed}", set()).add(market)
    assert {"spot", "on-demand"} in markets.values(), table
    page = tmp_path / "page.html"
    assert run(("report", "--out", str(page))) == 0
    assert "g5.xlarge, spot" in page.read_text(), "a row of the map is named by its market, not `market spot`"
    assert "market spot" not in page.read_text()
