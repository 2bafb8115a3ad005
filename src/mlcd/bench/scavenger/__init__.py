"""How well Scavenger's modes predict time and cost over cluster and batch, on measured trainings."""
