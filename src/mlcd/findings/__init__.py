"""What reports say of a run, computed once: predictions, receipt, comparisons and why each other choice lost.

Pure functions of a run. The engine stores what they give when a run ends; reports only read it.
"""

from mlcd.findings.of_run import findings_of, shown

__all__ = ["findings_of", "shown"]
