"""How schedulers of functions compare, simulated; the paper's toy table and its comparison with instances."""
