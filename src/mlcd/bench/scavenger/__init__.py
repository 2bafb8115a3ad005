"""How well Scavenger's modes predict time and cost by cluster size and batch, on measured trainings."""
