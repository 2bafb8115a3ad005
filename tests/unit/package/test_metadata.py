"""The package's metadata is complete, and says what is true."""

import importlib.metadata
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import mlcd
from mlcd.version import __version__

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)
    return found


def test_the_version_is_in_one_place(project: dict[str, Any]) -> None:
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/mlcd/version.py"
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+((a|b|rc|\.dev)[0-9]+)?", __version__)
    assert mlcd.__version__ == __version__
    written = [
        path.relative_to(ROOT)
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r"^__version__ = ", path.read_text(encoding="utf-8"), re.M)
    ]
    assert written == [Path("src/mlcd/version.py")]


def test_what_the_readme_links_to_is_in_the_source_distribution(project: dict[str, Any]) -> None:
    shipped = [*project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"], "/LICENSE"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = {link.partition("#")[0] for link in re.findall(r"\]\((?!https?:)([^)#]+)", readme)}
    assert "docs/images/demo.svg" in linked
    for link in linked:
        assert (ROOT / link).is_file(), link
        assert any(f"/{link}" == path or f"/{link}".startswith(f"{path}/") for path in shipped), link


def test_an_index_can_show_it(project: dict[str, Any]) -> None:
    metadata = project["project"]
    assert (ROOT / metadata["readme"]).is_file()
    assert all((ROOT / name).is_file() for name in metadata["license-files"])
    assert 0 < len(metadata["description"]) <= 512
    assert "\n" not in metadata["description"]
    assert {"Source", "Documentation", "Changelog", "Issues"} <= set(metadata["urls"])
    assert all(url.startswith("https://") for url in metadata["urls"].values())
    oldest = metadata["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in metadata["classifiers"]
    assert not any(each.startswith("License ::") for each in metadata["classifiers"]), "`license` says it"
    assert metadata["scripts"] == {"mlcd": "mlcd.cli.main:main"}


def test_every_extra_is_in_the_table_of_the_install_page(project: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    table = page.partition("## Extras")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z-]+)`", "\n".join(re.findall(r"^\| (.*?) \|", table, re.M))))
    assert named == set(project["project"]["optional-dependencies"])


def test_the_sdist_has_what_the_wheel_is_built_from(project: dict[str, Any]) -> None:
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert "/src" in included
    assert all((ROOT / name.removeprefix("/")).exists() for name in included)
    assert project["project"]["readme"] in {name.removeprefix("/") for name in included}


def test_what_is_installed_here_is_this_version() -> None:
    assert importlib.metadata.version("mlcd") == __version__
