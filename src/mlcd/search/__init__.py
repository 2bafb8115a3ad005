"""Strategies, which decide what to try next: the protocol in `strategy.py`, then one file for each strategy."""
