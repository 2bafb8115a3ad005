"""Accelerators by name and count, and the named sets of current types."""

import pytest

from mlcd.catalog import Accelerator, Catalog, load_catalog, nearest_accelerator, parse_accelerator
from mlcd.cli.catalog import _chosen
from mlcd.errors import BadInput


@pytest.fixture(autouse=True)
def _no_catalog_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLCD_CATALOG", raising=False)


@pytest.fixture
def catalog() -> Catalog:
    return load_catalog()


GPUS = {
    "aws": {"L4", "L40S", "A10G", "A100", "A100-80GB", "H100", "H200", "B200"},
    "gcp": {"L4", "A100", "A100-80GB", "H100", "H100-MEGA", "H200"},
    "azure": {"A10", "A100", "A100-80GB", "H100"},
}


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_the_gpu_set_of_a_cloud_has_the_training_gpus_of_now(catalog: Catalog, cloud: str) -> None:
    chosen = catalog.select([f"{cloud}-gpu"], cloud=cloud)
    assert {i.accelerator for i in chosen} == GPUS[cloud]
    every = {i.name for i in catalog.for_cloud(cloud).values() if i.accelerator in GPUS[cloud]}
    assert {i.name for i in chosen} == every


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_the_cpu_set_of_a_cloud_has_no_accelerator_no_burstable_and_no_retired_type(
    catalog: Catalog, cloud: str
) -> None:
    chosen = catalog.select([f"{cloud}-cpu"], cloud=cloud)
    assert chosen
    assert not any(i.accelerators or i.unfit_for_training for i in chosen)
    assert not any(i.name.startswith(("c4.", "m4.", "r4.", "t3.")) for i in chosen)


def test_the_default_is_the_current_gpus_and_cpus(catalog: Catalog) -> None:
    assert catalog.default_types("aws") == ("aws-gpu", "aws-cpu")
    assert catalog.default_types("gcp") == ("gcp-gpu", "gcp-cpu")
    assert catalog.default_types("lab") == ("*",)


def test_inferentia_trainium_and_tpus_are_not_gpus(catalog: Catalog) -> None:
    other = {i.accelerator for i in catalog.instances if i.accelerators and not i.has_gpu}
    assert other == {"Inferentia2", "Trainium", "TPU-v2", "TPU-v3", "TPU-v5e"}
    assert not any(i.has_gpu for i in catalog.select(["aws-cpu"], cloud="aws"))


@pytest.mark.parametrize(
    ("text", "name", "count"), [("H100", "H100", None), ("h100:8", "h100", 8), (" A100-80GB : 4 ", "A100-80GB", 4)]
)
def test_an_accelerator_is_read(text: str, name: str, count: int | None) -> None:
    assert parse_accelerator(text) == Accelerator(name=name.strip(), count=count)


@pytest.mark.parametrize("text", ["", "8", "H100:", "H100:0", "H100:eight", "H100:8:8", "H100:99999", "*", "x" * 60])
def test_what_is_no_accelerator_is_none(text: str) -> None:
    assert parse_accelerator(text) is None


def test_a_name_covers_its_variants_and_a_count_is_exact(catalog: Catalog) -> None:
    def found(text: str) -> set[str]:
        accelerator = parse_accelerator(text)
        assert accelerator is not None
        return {i.name for i in catalog.for_cloud("aws").values() if accelerator.fits(i)}

    assert found("A100") == {"p4d.24xlarge", "p4de.24xlarge"}
    assert found("a100-80gb") == {"p4de.24xlarge"}
    assert found("H100:8") == {"p5.48xlarge"}
    assert found("H100:1") == {"p5.4xlarge"}
    assert found("A10") == set()  # A10G and A100 are others


@pytest.mark.parametrize(("text", "near"), [("H100:3", "H100:1"), ("H101", "H100"), ("l40", "L40S"), ("zzz", "")])
def test_the_nearest_accelerator(catalog: Catalog, text: str, near: str) -> None:
    assert nearest_accelerator(text, list(catalog.for_cloud("aws").values())) == near


def test_the_catalog_command_takes_accelerators(catalog: Catalog) -> None:
    assert {i.name for i in _chosen(catalog, ("H100:8",), "aws")} == {"p5.48xlarge"}
    assert {i.cloud for i in _chosen(catalog, ("H100",), None)} == {"aws", "azure", "gcp"}
    with pytest.raises(BadInput, match=r"no instance type has the accelerator 'H101'; did you mean 'H100'\?"):
        _chosen(catalog, ("H101",), None)
    with pytest.raises(BadInput, match=r"did you mean 'c5\.xlarge'"):
        _chosen(catalog, ("c5.xlrge",), None)
