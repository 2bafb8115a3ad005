"""Forecasts of Scavenger's models alone, fitted to whole trainings that no user has: an upper bound for the models.

`mlcd bench scavenger` shows what the product achieves with its trials.
"""
