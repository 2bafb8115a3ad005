"""Attacks on mlcd, each with a seed and a count: `scripts/attack`. One file an attack; `attack.py` is shared."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))  # some attacks are benchmarks, counted
