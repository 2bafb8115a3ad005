"""The command line: a thin shell with one file per command, each imported only when it is called."""
