import csv
import time
from datetime import date
from pathlib import Path

import pytest

from mlcd.catalog import Catalog, Instance, load, load_catalog
from mlcd.catalog.load import _packaged
from mlcd.catalog.sanity import implausibility
from mlcd.errors import CatalogError
from mlcd.units import Usd


@pytest.fixture(autouse=True)
def _no_catalog_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLCD_CATALOG", raising=False)


@pytest.fixture
def catalog() -> Catalog:
    return load_catalog()


def write(tmp_path: Path, text: str, name: str = "mine.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_the_snapshot_covers_three_clouds_and_the_papers_families(catalog: Catalog) -> None:
    assert len(catalog.instances) >= 150
    assert catalog.clouds == ("aws", "azure", "gcp")
    families = {name.split(".")[0] for name in catalog.for_cloud("aws")}
    assert {"c4", "c5", "c5n", "m4", "p2", "p3", "g3"} <= families
    assert any("TPU" in (i.accelerator or "") for i in catalog.instances)
    assert catalog.notes
    assert catalog.date == date(2026, 8, 1)
    assert catalog.age_days(date(2026, 8, 31)) == 30


def test_every_row_of_the_snapshot_is_sane(catalog: Catalog) -> None:
    for instance in catalog.instances:
        assert implausibility(instance) is None
        assert len(instance.features) == len(catalog.instances[0].features)
        assert (instance.accelerator is not None) == (instance.accelerators > 0)


def test_prices_of_figure_1a(catalog: Catalog) -> None:
    aws = catalog.for_cloud("aws")
    ratio = aws["p2.8xlarge"].usd_per_hour.dollars / aws["c5.xlarge"].usd_per_hour.dollars
    assert ratio == pytest.approx(42.5, rel=0.01)
    assert aws["p2.xlarge"].price(spot=True) is None
    assert aws["c5.xlarge"].price(spot=False) == Usd.of("0.17")


def test_aws_62_is_the_papers_3100_deployments(catalog: Catalog) -> None:
    chosen = catalog.select(["aws-62"], cloud="aws")
    assert len(chosen) == 62
    assert {i.name for i in catalog.select(["aws-paper"], cloud="aws")} < {i.name for i in chosen}
    assert all(i.accelerators for i in catalog.select(["aws-accelerators"], cloud="aws"))


def test_select_takes_names_globs_and_sets_without_duplicates(catalog: Catalog) -> None:
    names = [i.name for i in catalog.select(["c5n.4xlarge", "c5n.*", "p2.xlarge", "c5n.4xlarge"], cloud="aws")]
    assert names[0] == "c5n.4xlarge"
    assert names[-1] == "p2.xlarge"
    assert len(names) == len(set(names)) == 7


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [("c5.4xlrge", "'c5.4xlarge'"), ("aws62", "'aws-62'"), ("c5.nope*", "c5"), ("gcp-gpu", "gcp, not of aws")],
)
def test_an_unknown_name_is_refused_with_the_nearest(catalog: Catalog, pattern: str, hint: str) -> None:
    with pytest.raises(CatalogError, match="aws") as caught:
        catalog.select([pattern], cloud="aws")
    assert pattern in str(caught.value)
    assert hint in str(caught.value)


def test_an_unknown_cloud_is_refused(catalog: Catalog) -> None:
    with pytest.raises(CatalogError, match="did you mean 'azure'"):
        catalog.for_cloud("azuree")


def test_popular_types_exist(catalog: Catalog) -> None:
    for cloud, names in catalog.popular.items():
        assert set(names) <= set(catalog.for_cloud(cloud))


def test_a_users_csv_replaces_and_adds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(
        tmp_path,
        "cloud,name,vcpus,memory_gib,network_gbps,usd_per_hour,spot_usd_per_hour\n"
        "aws,c5.xlarge,,,,0.15,none\n\n"
        "lab,node,8,64,10,0.5,\n",
    )
    monkeypatch.setenv("MLCD_CATALOG", str(path))
    catalog = load_catalog()
    changed = catalog.for_cloud("aws")["c5.xlarge"]
    assert changed.usd_per_hour == Usd.of("0.15")
    assert changed.spot_usd_per_hour is None
    assert changed.vcpus == 4
    assert catalog.for_cloud("lab")["node"].memory_gib == 64
    assert len(catalog.select(["aws-62"], cloud="aws")) == 62
    assert "2 rows" in catalog.notes[-1]


def test_a_users_yaml(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "instances:\n- {cloud: aws, name: p2.xlarge, spot_usd_per_hour: 0.27}\n"
        "- cloud: lab\n  name: box\n  vcpus: 8\n  memory_gib: 32\n  network_gbps: 1\n  usd_per_hour: $1\n"
        "  accelerator: T4\n  accelerators: 2\n  accelerator_tflops: 65\n  accelerator_memory_gib: 16\n",
        "mine.yaml",
    )
    catalog = load_catalog(path)
    assert catalog.for_cloud("aws")["p2.xlarge"].spot_usd_per_hour == Usd.of("0.27")
    assert catalog.for_cloud("lab")["box"].accelerators == 2


HEAD = "cloud,name,vcpus,memory_gib,network_gbps,usd_per_hour,spot_usd_per_hour,accelerator,accelerators"


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("", "a.csv", ["is empty"]),
        ("cloud,name,vcpu\n", "a.csv", ["a.csv:1", "vcpu", "did you mean 'vcpus'"]),
        (f"{HEAD}\naws,c5.xlarge,,,,0,,,\n", "a.csv", ["a.csv:2", "usd_per_hour", "'0'", "above 0"]),
        (f"{HEAD}\naws,c5.xlarge,,,,-1,,,\n", "a.csv", ["a.csv:2", "usd_per_hour", "'-1'"]),
        (f"{HEAD}\naws,c5.xlarge,,,,cheap,,,\n", "a.csv", ["'cheap'"]),
        (f"{HEAD}\naws,c5.xlarge,,,,inf,,,\n", "a.csv", ["'inf'"]),
        (f"{HEAD}\naws,c5.xlarge,,,,,0.5,,\n", "a.csv", ["spot costs more than on demand", "0.17"]),
        (f"{HEAD}\naws,p2.xlarge,,,,90,,,\n", "a.csv", ["per accelerator-hour", "40"]),
        (f"{HEAD}\naws,c5.xlarge,,9000,,,,,\n", "a.csv", ["memory_gib", "not plausible"]),
        (f"{HEAD}\naws,c5.xlrge,,,,0.1,,,\n", "a.csv", ["needs vcpus", "did you mean 'c5.xlarge'"]),
        (f"{HEAD}\naws,c5.xlarge,,,,,,,3\n", "a.csv", ["without an accelerator"]),
        (f"{HEAD}\naws,p2.xlarge,,,,,,,1.5\n", "a.csv", ["whole number"]),
        (f"{HEAD}\naws,,,,,1,,,\n", "a.csv", ["name", "missing"]),
        (f"{HEAD}\naws,c5.xlarge\n", "a.csv", ["a.csv:2", "2 cells"]),
        (f"{HEAD}\naws,p2.xlarge,,,,,,,\naws,p2.xlarge,,,,,,,\n", "a.csv", ["a.csv:3", "twice", "line 2"]),
        (f'{HEAD}\naws,"p2', "a.csv", ["not CSV"]),
        ("[1", "a.yaml", ["not YAML"]),
        ("- 3\n", "a.yaml", ["a.yaml:1", "mapping"]),
        ("- {cloud: aws, name: [1]}\n", "a.yaml", ["single value"]),
        ("- {cloud: aws, nam: x}\n", "a.yaml", ["a.yaml:1", "did you mean 'name'"]),
        ("a: b\n", "a.yaml", ["list of instances"]),
        ("", "a.txt", [".csv, .yaml or .yml"]),
    ],
)
def test_a_bad_file_is_refused_with_file_and_line(tmp_path: Path, text: str, name: str, words: list[str]) -> None:
    with pytest.raises(CatalogError) as caught:
        load_catalog(write(tmp_path, text, name))
    for word in words:
        assert word in str(caught.value)


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="cannot be read"):
        load_catalog(tmp_path / "none.csv")
    (tmp_path / "bin.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(CatalogError, match="UTF-8"):
        load_catalog(tmp_path / "bin.csv")


def test_an_instance_cannot_be_built_wrong() -> None:
    with pytest.raises(ValueError, match="more than 0"):
        Instance(cloud="aws", name="x", vcpus=0, memory_gib=1, network_gbps=1, usd_per_hour=Usd.of(1))


def test_loading_is_quick() -> None:
    """Compared with plain reading of the same file on the same machine; checking every cell may take longer."""
    (snapshot,) = Path(load.__file__).parent.glob("snapshots/20*.csv")
    best = plain = float("inf")
    for _ in range(5):
        _packaged.cache_clear()
        start = time.process_time()
        load_catalog()
        best = min(best, time.process_time() - start)
        start = time.process_time()
        list(csv.DictReader(snapshot.read_text(encoding="utf-8").splitlines()))
        plain = min(plain, time.process_time() - start)
    assert best < 60 * plain
