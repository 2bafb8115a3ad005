"""What each reading of HeterBO's equations 5 and 6 gives: the record behind `heterbo:paper`.

    .venv/bin/python benchmarks/paper_readings.py [--seeds 20]

Seeds from 1000: not those of the paper's figures. Writes benchmarks/results/paper-readings.json.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from ablated import heterbo as beds
from record_paper import ROOT, sources

from mlcd.bench.case import search
from mlcd.goal import Goal, Objective
from mlcd.units import HOUR, Usd
from papers.heterbo_figures.experiment import Experiment, _outcome, free_optimum

FIRST_SEED = 1000
SINGLES = (("single budget", 1.6), ("single budget", 2.2), ("single deadline", 1.6), ("single deadline", 2.0))
FIGURES = {
    "9": Experiment(job="resnet-scale-out", goal=Goal(minimize=Objective.TIME)),
    "10": Experiment(job="resnet-scale-out", goal=Goal(minimize=Objective.COST, deadline_seconds=6 * HOUR)),
    "11": Experiment(job="resnet-scale-out", goal=Goal(minimize=Objective.TIME, budget=Usd.of(100))),
    "14": Experiment(job="char-rnn", goal=Goal(minimize=Objective.COST, deadline_seconds=20 * HOUR)),
    "15": Experiment(job="char-rnn", goal=Goal(minimize=Objective.TIME, budget=Usd.of(120))),
    "17": Experiment(job="bert-mxnet", goal=Goal(minimize=Objective.TIME, budget=Usd.of(120))),
}
READINGS = (
    ("tei-literal", "largest slack, run S/EI: as printed"),
    ("tei-increment", "largest slack, run S/(y0 + EI)"),
    ("tei-plan", "largest slack, run at the expected speed"),
    ("tei-upper", "largest slack, run at the upper end of the 95% interval"),
    ("tei-if-increment", "slack as condition, run S/(y0 + EI); score: improvement per trial price"),
    ("tei-if-lower", "as above, run at the lower end of the 95% interval"),
    ("tei-if-upper", "as above, run at the upper end"),
    ("tei-if-plan", "as above, run at the expected speed"),
    ("tei-if-speed", "improvement of the speed whatever the goal; at the upper end while nothing fits or passes"),
    ("tei", "improvement of the speed if time is minimised, of the money if money is; at the upper end likewise"),
    ("auto", "for comparison: mlcd's own acquisition from the same start"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    record = {
        "sources": sources(),
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"benchmarks/paper_readings.py --seeds {seeds}",
        "first_seed": FIRST_SEED,
        "seeds": seeds,
        "readings": [measured(acquisition, meaning, seeds) for acquisition, meaning in READINGS],
    }
    file = ROOT / "benchmarks" / "results" / "paper-readings.json"
    file.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def measured(acquisition: str, meaning: str, seeds: int) -> dict[str, object]:
    text = f"heterbo:start=all,acquisition={acquisition}"
    found = {}
    for figure, experiment in FIGURES.items():
        best = free_optimum(experiment)
        assert best is not None
        outcomes = []
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            setting = experiment.setting(seed)
            outcomes.append(_outcome(search(setting.problem, setting.cloud, text, seed=seed)))
        done = [o.run_value for o in outcomes if o.kept and o.run_value is not None]
        found[figure] = {"kept": len(done), "choice": fmean(done) / best.value if done else None}
    beds.FIRST_SEED = FIRST_SEED
    losses = [o.loss for bed, factor in SINGLES for o in beds._on_single_types(text, bed, factor, 1)]
    print(acquisition, found, fmean(losses), flush=True)
    return {"strategy": text, "meaning": meaning, "figures": found, "single_types": fmean(losses), "runs": len(losses)}


if __name__ == "__main__":
    main()
