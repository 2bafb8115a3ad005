"""The band of the search's picture: what the model expects where nothing was tried."""

from dataclasses import replace

import pytest
from tests.report_samples import budget_run

from mlcd.findings import shown
from mlcd.report.pictures import picture_among, pictures_of
from mlcd.run.findings import Findings
from mlcd.run.run import SearchRun


def speed_svg(run: SearchRun) -> str:
    return picture_among(pictures_of(run), "speed", where="the run has").svg


@pytest.fixture(scope="module")
def run() -> SearchRun:
    return shown(replace(budget_run(), findings=None))


def test_untried_numbers_of_nodes_have_a_band(run: SearchRun) -> None:
    expected = [each for each in run.train_findings.untried if each.speed_interval is not None]
    assert expected
    for each in expected:
        assert each.samples_per_second is not None
        assert each.speed_interval is not None
        low, high = each.speed_interval
        assert low < each.samples_per_second < high
    tried = {trial.config.instance for trial in run.history}
    types = {each.config.instance for each in expected} & tried
    assert speed_svg(run).count('<polygon class="b-') == len(types)
    assert "predicted, 95%" in speed_svg(run)


def test_findings_of_earlier_versions_have_none(run: SearchRun) -> None:
    found = run.train_findings
    old = tuple(replace(each, samples_per_second=None, deviation=None) for each in found.untried)
    assert old[0].speed_interval is None
    svg = speed_svg(replace(run, findings=Findings(train=replace(found, untried=old))))
    assert '<polygon class="b-' not in svg
    assert "predicted, 95%" not in svg
