"""The version, where everyone may import it from."""

__version__ = "0.1.0"
