"""Forecasts of Scavenger's models alone, fitted to whole trainings that no user has: what the models could do at best.

`mlcd bench scavenger` shows what the product does with what its trials see.
"""
