"""A run is a sequence of authorised steps with their outcomes, and a verdict."""
