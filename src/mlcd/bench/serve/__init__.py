"""`mlcd bench serve`: searches for how to serve a model, where every configuration was measured."""
