"""What is tried and what came of it: frozen values that cannot be built wrong."""
