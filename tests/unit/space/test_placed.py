"""Names of instance types that say where they are."""

from mlcd.catalog.places import cloud_and_region
from mlcd.space.placed import matches, place_of, placed_name, plain_name


def test_a_placed_name_gives_back_its_parts() -> None:
    name = placed_name("g6.xlarge", "aws/us-east-1")
    assert (name, plain_name(name), place_of(name)) == ("g6.xlarge (aws/us-east-1)", "g6.xlarge", "aws/us-east-1")
    assert (plain_name("g6.xlarge"), place_of("g6.xlarge")) == ("g6.xlarge", "")


def test_globs_match_a_type_with_or_without_its_place() -> None:
    assert matches("g6.xlarge (aws)", "g6.*")
    assert matches("g6.xlarge (aws)", "* (aws)")
    assert matches("g6.xlarge (aws)", "g6.xlarge")
    assert matches("g6.xlarge", "g6.xlarge")
    assert not matches("g6.xlarge (aws)", "* (gcp)")
    assert not matches("g6.xlarge (aws)", "g6.x")


def test_a_bare_cloud_is_in_the_region_of_the_prices() -> None:
    assert cloud_and_region("aws") == ("aws", "us-east-1")
    assert cloud_and_region("sim/gcp") == ("gcp", "us-central1")
    assert cloud_and_region("aws/eu-west-1/eu-west-1a") == ("aws", "eu-west-1")
    assert cloud_and_region("kubernetes") == ("kubernetes", "")
