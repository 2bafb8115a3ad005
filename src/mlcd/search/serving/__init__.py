"""Strategies for serving, one file each. Most use measurements of other models."""
