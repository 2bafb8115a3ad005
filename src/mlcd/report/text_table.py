"""Tables in characters."""

from collections.abc import Sequence


def text_table(rows: Sequence[Sequence[str]], align: str, *, indent: int = 2, gap: int = 3) -> list[str]:
    """Lines with aligned columns: `<` or `>` a column in `align`; the last column is not padded."""
    widths = [max((len(row[at]) for row in rows), default=0) for at in range(len(align))]
    return [
        (
            " " * indent + (" " * gap).join(f"{cell:{a}{w}}" for cell, a, w in zip(row, align, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
