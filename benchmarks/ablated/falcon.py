"""falcon and falcon-transfer on the shipped H200 tables, each model held out in turn."""

from pathlib import Path

from ablated.compare import Change, Outcome
from mlcd.bench.serve.beds import beds
from mlcd.bench.serve.score import ServeComparison, compare

SEEDS, FIRST_SEED = 1, 1000
TRIALS = 15
REQUESTS = 1e9
NOTHING_LOSS = 3.0

CHANGES = (
    Change(part="tree", text="falcon:smallest-region=100000"),
    Change(part="tree: exploring", text="falcon:explore=0"),
    Change(part="curves: pruned knobs", text="falcon:cutoff=1"),
    Change(part="key operators", text="falcon:threshold=1"),
    Change(part="residual along the knobs", text="falcon:knob-deviation=0.001"),
    Change(part="stop by gain", text="falcon:gain=0"),
    Change(part="least trials", text="falcon:least=1"),
    Change(part="residuals of other models", text="falcon-transfer:least-models=1000"),
    Change(part="likeness of models", text="falcon-transfer:likeness=off"),
    Change(part="net-gain stop", text="falcon-transfer:requests=1e15"),
    Change(part="least trials", text="falcon-transfer:least=1"),
)


def outcomes(text: str, change: Change, tables: Path, seeds: int) -> list[Outcome]:  # noqa: ARG001
    """Dollars for REQUESTS requests and for the search, relative to the best configuration's for the requests."""
    bed = beds()[0]
    comparison = ServeComparison(strategies=(text,), trials=(TRIALS,), seeds=seeds, first_seed=FIRST_SEED)
    found = []
    for row in compare(comparison, [bed]):
        accuracy = row.accuracy[TRIALS]
        best = float(bed.known.per_dollar(bed.model(row.target), row.slo_ms / 1000).max())
        loss = 1 / accuracy + row.search_usd[TRIALS] * best / REQUESTS if accuracy > 0 else NOTHING_LOSS
        found.append(
            Outcome(bed=f"{row.slo_ms:g} ms", workload=row.target, unseen=row.unseen, seed=row.seed, loss=loss)
        )
    return found
