"""What reports say of a run, computed once: predictions, receipt, comparisons, rejection reasons.

Pure functions of a run. The engine stores their results when a run ends; reports only read them.
"""

from mlcd.findings.of_run import findings_of, shown

__all__ = ["findings_of", "shown"]
