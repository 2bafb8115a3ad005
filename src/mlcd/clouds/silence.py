"""Why a job's progress was not seen: what it wrote instead, and what to change."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mlcd.spec.real import ProgressRule
from mlcd.untrusted import printable

QUOTED_CHARACTERS = 120
"""A message quotes this much of a line or a pattern: enough to recognise it."""

LONGER = "if it only needs longer to begin, increase search.trial.minutes"


@runtime_checkable
class ExplainsSilence(Protocol):
    """A lease that can say what its job wrote while it reported no sample."""

    def silence(self) -> str:
        """What was seen and what to change, as the end of a sentence; "" where nothing is known."""
        ...


@runtime_checkable
class NamesDisturbance(Protocol):
    """A lease that can say what may have held its job up from outside."""

    def disturbance(self) -> str:
        """Such as other programs on this machine, as a clause; "" where nothing is known."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a job has written.

    lines      of the file that the progress rule reads
    matched    of these, with a number of samples, steps or a rate
    log_lines  of the output of node 0
    last_line  of that output, without what a terminal would obey
    """

    lines: int = 0
    matched: int = 0
    log_lines: int = 0
    last_line: str = ""


def silence_text(rule: ProgressRule, seen: Seen, *, has_ended: bool = False) -> str:
    """Why no sample was counted by `rule`, and what to change; `has_ended` if the job ended by itself."""
    last = f", the last one: {_quoted(seen.last_line)}" if seen.last_line else ""
    output = f"node 0 wrote {_count(seen.log_lines)}{last}" if seen.log_lines else "node 0 wrote no output"
    if rule.pattern:
        pattern = f"progress.pattern {_quoted(rule.pattern)}"
        if seen.matched:
            matched = f"{seen.matched} of {_count(seen.lines)} matched {pattern}, without a sample after the first"
            return f"{matched}{last}; print progress more often, or increase search.trial.minutes"
        found = f"{output}; {'none matches' if seen.lines else 'nothing to match with'} {pattern}"
        return f"{found}; correct the pattern or what the script prints; {LONGER}"
    if rule.file:
        name = f"progress.file {_quoted(rule.file)}"
        found = f"none of its {_count(seen.lines)} has a number" if seen.lines else "it has no line"
        keys = '{"samples": 640}'
        return f"{name}: {found}; the script must append lines such as {keys} there; {output}; {LONGER}"
    if seen.lines:
        return f"mlcd.steps was called, and no step has ended; {output}; increase search.trial.minutes"
    fix = "loop over mlcd.steps(loader) in the script, or set progress.pattern to a line that it prints"
    if has_ended:
        return f"the script never called mlcd.steps; {output}; {fix}"
    if seen.log_lines:
        return f"the script had not called mlcd.steps by then; {output}; {fix}; {LONGER}"
    early = "it may still have been importing: increase search.trial.minutes"
    return f"the script had not called mlcd.steps by then, and {output}; {early}; if it never calls it, {fix}"


def _count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines:,} lines"


def _quoted(text: str) -> str:
    return repr(printable(text, most_characters=QUOTED_CHARACTERS))
