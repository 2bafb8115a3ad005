"""Scavenger (CCGrid 2023): the number of workers K and the global batch B together, in four modes, one file each."""
