import xml.etree.ElementTree as ET

import pytest

from mlcd.errors import BadInput
from mlcd.findings.batches import batch_tradeoff
from mlcd.models.tradeoff import depth, front, knee, weighted
from mlcd.report.batch_picture import batch_picture
from mlcd.run.findings import BatchCurve, BatchPoint
from papers.scavenger_pictures import BATCHES, PAPER_JOBS, WORKERS, figure, simulate
from papers.scavenger_pricing import ByMemory, PerNode, PricePolicy

POINTS = [(10.0, 10.0), (4.0, 12.0), (2.0, 14.0), (1.0, 30.0), (5.0, 40.0)]


def test_the_front_is_fastest_first_without_dominated_points() -> None:
    assert front(POINTS) == [3, 2, 1, 0]
    assert front([(1.0, 1.0), (1.0, 1.0)]) == [0]


def test_the_knee_lies_farthest_below_the_chord() -> None:
    assert knee(POINTS) == 2
    depths = depth(POINTS)
    assert depths[3] == depths[0] == 0
    assert max(depths) == depths[2]
    assert depths[4] < 0


def test_ties_and_straight_fronts_go_to_the_cheaper() -> None:
    assert knee([(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]) == 2
    assert knee([(1.0, 3.0), (2.0, 1.0)]) == 1
    assert knee([(5.0, 5.0)]) == 0
    assert knee([(0.0, 4.0), (1.0, 2.0), (2.0, 1.0), (4.0, 0.0)]) == 2  # both a quarter below: the cheaper
    assert depth([]) == []


def test_a_larger_weight_of_time_moves_from_the_cheapest_to_the_fastest() -> None:
    assert weighted(POINTS, 1.0) == 3
    assert weighted(POINTS, 0.0) == 0
    assert weighted(POINTS, 0.5) == 2
    with pytest.raises(BadInput):
        weighted(POINTS, 1.5)
    with pytest.raises(BadInput):
        weighted([], 0.5)
    with pytest.raises(BadInput):
        knee([])


def test_prices_by_node_and_by_memory() -> None:
    node = PerNode(usd_per_worker_hour=0.5)
    assert node.usd_per_hour(8, 64) == node.usd_per_hour(8, 6400) == 4.0
    memory = ByMemory(usd_per_gib_hour=0.01, fixed_gib=2.0, gib_per_sample=0.1)
    assert memory.memory_gib(4, 38) == pytest.approx(3.0)  # 10 samples on the fullest worker
    assert memory.usd_per_hour(4, 40) == pytest.approx(0.12)
    assert memory.usd_per_hour(4, 80) > memory.usd_per_hour(4, 40)
    for bad in (lambda: PerNode(usd_per_worker_hour=-1.0), lambda: memory.usd_per_hour(8, 4)):
        with pytest.raises(BadInput):
            bad()
    with pytest.raises(BadInput):
        ByMemory(usd_per_gib_hour=float("nan"), fixed_gib=1, gib_per_sample=1)


@pytest.mark.parametrize("name", PAPER_JOBS)
def test_the_papers_pictures_show_every_configuration_and_say_that_they_are_simulated(name: str) -> None:
    by_node, by_memory = (simulate(PAPER_JOBS[name], policy) for policy in PricePolicy)
    assert {(p.workers, p.batch) for p in by_node} == {(k, b) for k in WORKERS for b in BATCHES}
    assert all(abs(p.predicted_seconds / p.seconds - 1) < 0.15 for p in by_node)
    for batch in BATCHES:
        of = {p.workers: p for p in by_node if p.batch == batch}
        assert of[20].seconds < of[8].seconds < 2.5 * of[20].seconds  # more workers help, less than proportionally
    assert [p.seconds for p in by_memory] == [p.seconds for p in by_node]
    price = {p.batch: p.usd_per_hour for p in by_memory if p.workers == 8}
    assert price[1920] > price[240]
    for policy, points in zip(PricePolicy, (by_node, by_memory), strict=True):
        picture = figure(name, policy, points)
        root = ET.fromstring(picture)
        assert picture.count("<title>K (nodes): ") == len(points) + 1  # each point, and the ring
        assert "SIMULATED" in picture
        assert root.tag.endswith("svg")


def test_the_chosen_configuration_gets_the_ring() -> None:
    curve = BatchCurve(
        batch=64,
        measured=tuple(BatchPoint(workers=k, seconds=100 / k, usd=k + 1.0) for k in (1, 2, 4)),
        predicted=(),
    )
    picture = batch_picture(batch_tradeoff([curve], (1, 64)), title="t")
    assert 'class="halo chosen"' in picture
    assert ">K = 1, B = 64</text>" in picture
    assert "SIMULATED" not in picture
    assert "Nothing was measured" in batch_picture(batch_tradeoff([]), title="t", width=380)
