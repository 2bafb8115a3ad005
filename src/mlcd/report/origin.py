"""Where a run's times and prices come from: rented machines, a simulator, or a measured table."""

from mlcd.trial.record import RunRecord


def is_replayed(record: RunRecord) -> bool:
    """Whether a measured table answered; the whole job is then one sample."""
    return record.cloud.startswith("replay/")


def origin_word(record: RunRecord) -> str:
    """`SIMULATED`, `REPLAYED`, or nothing where machines were rented."""
    if is_replayed(record):
        return "REPLAYED"
    return "SIMULATED" if record.simulated else ""


def origin_text(record: RunRecord) -> str:
    """What the word means for this run; empty where there is no word."""
    if is_replayed(record):
        table = record.cloud.removeprefix("replay/")
        return f"times and prices are those of the measured table {table}; nothing was rented or paid."
    if record.simulated:
        return f"all time and money here is {record.cloud}'s; nothing was rented and nothing was paid."
    return ""


def prices_text(record: RunRecord) -> str:
    """Whose prices they are."""
    return "prices of the measured table" if is_replayed(record) else f"prices of {record.catalog_date}"
