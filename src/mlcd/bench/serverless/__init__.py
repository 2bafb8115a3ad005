"""How schedulers of functions compare, simulated."""
