"""Strategies that know how other models are served; one file each."""
