"""`mlcd serve` on one GPU: searches and exhaustive measurements of the same models in one run."""
