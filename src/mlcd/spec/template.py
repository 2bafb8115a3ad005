"""The job file that `mlcd init` writes."""

from mlcd.spec.node import YamlNode
from mlcd.spec.parse import job_name

_TEMPLATE = """\
# A job for `mlcd train`. It finds the instance type and the number of nodes for a training job, inside your limits.
# `name`, `goal` and, on sim/, `job` are needed; everything else has the default shown in docs/job-file.md.
name: NAME

# Where to run, and on what. `mlcd train JOB --on X` is the same as infra: X.
resources:
  infra: sim/aws                  # a simulated cloud costs nothing; replay/FOLDER replays measured tables
  instance_type: [c5.*, c5n.4xlarge, p2.x*, p3.2x*]   # names, globs, or a set such as aws-62
  use_spot: false                 # true: cheaper, may be interrupted; globs then match only types with a spot market

# How many nodes may be chosen: 1..50 for all types, or a list, or by glob (the first match counts).
num_nodes: {default: 1..50, "c*": 1..100}

# What runs on each node. Simulated clouds do not run it.
run: python train.py

# The work is samples x epochs. The rest tells a simulated cloud what is trained.
job:
  model: resnet152
  samples: 50000
  epochs: 90
  batch: 512                      # the global batch
  topology: ring                  # ring (all-reduce) or ps (parameter servers)

# What you want. The limits hold for search and training together.
#   fastest                      {minimize: time}
#   fastest within a budget      {minimize: time, budget: 100 USD}
#   cheapest before a deadline   {minimize: cost, deadline: 6h30m}       or deadline: 2026-12-01T18:00Z
#   best of both                 {minimize: knee}
goal:
  minimize: time
  budget: 100 USD

# How to search. These are the defaults.
search:
  strategy: heterbo               # options follow a colon: heterbo:prune=off,start=2
  max_trials: 30
  parallel: 1                     # trials at the same time
  assurance: 0.999999             # how sure mlcd must be that training fits the limits
  trial:
    minutes: 10                   # one trial on up to 3 nodes
    extra_minutes_per_3_nodes: 1  # larger ones take longer to start
"""


def template(name: str = "resnet-cifar10") -> str:
    """A commented job file for a job called `name`. Raises SpecError if that is not a valid job name."""
    return _TEMPLATE.replace("NAME", job_name(YamlNode(value=name, path="name", written=name)), 1)
