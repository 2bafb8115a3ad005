"""The command line: a thin shell, one file a command, each loaded when it is called by its name."""
