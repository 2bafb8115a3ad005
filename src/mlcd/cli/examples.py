"""Examples at the end of a command's help."""


def examples(*lines: str, after: str = "") -> str:
    """The epilog of a command: one example a line, unwrapped; then the paragraph `after`."""
    shown = "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
    return f"{shown}\n\n{after}" if after else shown
