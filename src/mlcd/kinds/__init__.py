"""The kinds of job in one table: how each is read back, prepared, watched, shown as text, JSON, HTML and pictures."""

from mlcd.kinds.job_kind import JobKind, kind_of

__all__ = ["JobKind", "kind_of"]
