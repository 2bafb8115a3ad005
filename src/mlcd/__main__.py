"""`python -m mlcd` is the `mlcd` program."""

from mlcd.cli.main import main

main()
