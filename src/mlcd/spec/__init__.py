"""The YAML a user writes, read into frozen values with errors that name the line."""

from mlcd.spec.goals import parse_goal
from mlcd.spec.overrides import with_overrides
from mlcd.spec.parse import parse_train, read_train, spec_from_mapping
from mlcd.spec.template import TEMPLATES, template
from mlcd.spec.train import NodeCounts, Resources, SearchSettings, TrainSpec, Work

__all__ = [
    "TEMPLATES",
    "NodeCounts",
    "Resources",
    "SearchSettings",
    "TrainSpec",
    "Work",
    "parse_goal",
    "parse_train",
    "read_train",
    "spec_from_mapping",
    "template",
    "with_overrides",
]
