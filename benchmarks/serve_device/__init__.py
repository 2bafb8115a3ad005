"""Measures models and their operators on shares of one GPU: the offline data of `mlcd.known.h200`."""
