"""Comparison of schedulers of functions, in simulation."""
