"""How a run is shown: pure functions from a SearchRun or the engine's events to text, JSON, SVG and HTML."""
