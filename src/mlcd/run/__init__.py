"""A run is a sequence of authorised steps: what was asked, what was allowed, what came of it, and the verdict."""
