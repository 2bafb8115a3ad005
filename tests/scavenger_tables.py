"""Tables of trainings whose truth is a law, in the form of the measured ones."""

from pathlib import Path

WORKERS = (1, 2, 4, 8, 16, 32)
LOCAL_BATCHES = (8, 16, 32, 64, 128)
BATCHES = (32, 64, 128, 256, 512, 1024)
EPOCHS = 40


def step_seconds(workers: int, local_batch: float, size: float = 1.0) -> tuple[float, float]:
    """(step, its synchronisation): compute and exchange one after the other."""
    compute = size * (0.03 + 0.004 * local_batch)
    exchange = 0.0 if workers == 1 else size * (0.02 if workers <= 4 else 0.2 + 0.002 * workers)
    return compute + exchange, exchange


def steps_to_target(batch: int, floor: float = 500.0, critical: float = 300.0) -> float:
    return floor * (1 + critical / batch)


def write_tables(folder: Path, *, size: float = 1.0, floor: float = 500.0, lower: bool = False) -> Path:
    """A model's folder: the metric climbs straight to 1 (or falls to 1), and meets the target after steps_to_target."""
    folder.mkdir(parents=True)
    rows = ["cluster,nodes,gpus,local_batch,step_seconds,sync_seconds,measurements"]
    for workers in WORKERS:
        for local in LOCAL_BATCHES:
            step, sync = step_seconds(workers, local, size)
            rows.append(f"lab,{max(1, workers // 4)},{workers},{local},{step!r},{sync!r},1")
    rows.append("lab,2,4,8,9.9,9.9,1")  # half-empty nodes: no configuration of the benchmark
    (folder / "steps.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    rows = ["batch,iteration,metric,grad_sqr,grad_var"]
    for batch in BATCHES:
        needed = steps_to_target(batch, floor)
        for epoch in range(1, EPOCHS + 1):
            iteration = epoch * needed * 1.25 / EPOCHS
            share = min(1.0, 0.98 * iteration / needed)
            metric = 1 / share if lower else share
            # The variance is that of a gradient of the smallest batch: phi = 32 var / sqr = 300.
            rows.append(f"{batch},{iteration!r},{metric!r},2.0,{2.0 * 300 / BATCHES[0]!r}")
    (folder / "convergence.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder
