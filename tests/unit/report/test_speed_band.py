"""The band of the search's picture: what the model expects where nothing was tried."""

import re
from dataclasses import replace

import pytest
from tests.report_samples import budget_run

from mlcd.findings import shown
from mlcd.report.frame import series
from mlcd.report.labels import Box
from mlcd.report.pictures import picture_among, pictures_of
from mlcd.report.speed_picture import _cut, speed
from mlcd.report.wording import speed_text
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
    two = with_types(run, [*types_with_a_band(run)][:2])
    assert speed_svg(two).count('<polygon class="b-') == 2
    assert "predicted, 95%<" in speed_svg(two)
    assert ' dash"' not in speed_svg(two)
    assert "dashed" not in speed(two).description


def types_with_a_band(run: SearchRun) -> list[str]:
    tried = {trial.config.instance for trial in run.history}
    untried = [each.config.instance for each in run.train_findings.untried if each.speed_interval is not None]
    return sorted(tried & set(untried))


def with_types(run: SearchRun, types: list[str]) -> SearchRun:
    """The same run, of which only these types have untried numbers of nodes."""
    found = run.train_findings
    untried = tuple(each for each in found.untried if each.config.instance in types)
    return replace(run, findings=Findings(train=replace(found, untried=untried)))


def test_of_three_bands_only_the_choice_s_is_shaded(run: SearchRun) -> None:
    """Three areas over each other are one grey area."""
    types = types_with_a_band(run)
    assert len(types) > 2
    assert run.choice is not None
    chosen = run.choice.config.instance
    svg = speed_svg(run)
    (area,) = re.findall(r'<polygon class="b-(\w+)"', svg)
    looks = series(run)
    assert area == looks[chosen].css
    lines = set(re.findall(r'<polyline class="w-(s\d) dash" points="[^ ]+ [^ ]+ [^"]+"', svg))
    assert lines == {looks[name].css for name in types if name != chosen}
    assert f"predicted, 95%: {chosen}" in svg
    assert "predicted, others" in svg
    assert f"at 95%, of {chosen}; dashed: what it expects of the others" in speed(run).description


def test_line_of_what_is_expected_stays_within_the_plot(run: SearchRun) -> None:
    """Without a piece along the top edge where the model expects more than the plot shows."""
    found = run.train_findings
    chosen = run.choice and run.choice.config.instance
    fast = tuple(
        replace(each, samples_per_second=1e6 * (each.samples_per_second or 1))
        if each.config.instance != chosen
        else each
        for each in found.untried
    )
    svg = speed_svg(replace(run, findings=Findings(train=replace(found, untried=fast))))
    assert '<polygon class="b-' in svg
    assert 'points="' in svg
    for piece in re.findall(r'<polyline class="w-s\d dash" points="([^"]+)"', svg):
        heights = [float(point.split(",")[1]) for point in piece.split()]
        assert min(heights) > 0


def test_findings_of_earlier_versions_have_none(run: SearchRun) -> None:
    found = run.train_findings
    old = tuple(replace(each, samples_per_second=None, deviation=None) for each in found.untried)
    assert old[0].speed_interval is None
    svg = speed_svg(replace(run, findings=Findings(train=replace(found, untried=old))))
    assert '<polygon class="b-' not in svg
    assert "predicted, 95%" not in svg


def test_band_that_goes_on_above_the_plot_says_how_far(run: SearchRun) -> None:
    found = run.train_findings
    assert run.choice is not None
    chosen = run.choice.config.instance
    wide = tuple(replace(each, deviation=2.0) if each.config.instance == chosen else each for each in found.untried)
    tight = tuple(replace(each, deviation=0.001) for each in found.untried)
    told = [
        re.findall(r"goes on to ([\d,.]+) samples/s", speed_svg(replace(run, findings=Findings(train=made))))
        for made in (replace(found, untried=wide), replace(found, untried=tight))
    ]
    highest = max(each.speed_interval[1] for each in wide if each.config.instance == chosen and each.speed_interval)
    assert told == [[speed_text(highest)], []]


def test_edge_of_a_band_is_cut_where_it_leaves_the_plot() -> None:
    plot = Box(0.0, 0.0, 100.0, 50.0)
    found = _cut([(0.0, 40.0), (10.0, -40.0), (20.0, 90.0)], plot)
    assert [y for _, y in found] == pytest.approx([40, 0, 0, 0, 50, 50])
    assert [x for x, _ in found] == pytest.approx([0, 5, 10, 10 + 400 / 130, 10 + 900 / 130, 20])
    assert _cut([], plot) == []
