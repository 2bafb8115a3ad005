"""Attacks on mlcd, each with a seed and a count: `scripts/attack`. One file an attack; `attack.py` is shared."""
