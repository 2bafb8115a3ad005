"""Trials and epochs with their outcomes: frozen values that check themselves when built."""
