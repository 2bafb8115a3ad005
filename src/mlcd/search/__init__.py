"""Who decides what to try next: the seam, then one file a strategy."""
