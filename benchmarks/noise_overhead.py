"""The overhead of measuring SGD noise: the same training with and without it, in alternating blocks of steps.

Each repetition starts K workers on this machine and trains three copies of one network in alternating blocks of some
steps: one as mlcd.torch.parallel exchanges gradients by default (plain), one measured (watched), and one like the
measured one but without measuring (bare: with gradient_as_bucket_view, which measuring sets). Their order changes from
round to round, so that other load on the machine slows all alike; a round is compared with itself only. Recorded are
the medians over the rounds of watched/plain - 1, which a user notices, and of watched/bare - 1, the cost of measuring
itself; their spread over repetitions; and how often noise was measured.

    .venv/bin/python benchmarks/noise_overhead.py [--workers 2] [--repetitions 5] [--networks tiny,digits,wide]
"""

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pages

RESULT = pages.ROOT / "benchmarks" / "results" / "noise-overhead.json"
PAGE = pages.ROOT / "docs" / "progress.md"
ORDERS = tuple(permutations(("plain", "bare", "watched")))
NETWORKS = {
    "tiny": "0.6 thousand parameters: a step is hardly more than the exchange",
    "digits": "the convolutional network of examples/digits-cnn, 0.15 million parameters, batch 192",
    "wide": "2.7 million parameters in dense layers, batch 64: many gradients and little work",
}


def network(name: str) -> Any:
    from torch import nn  # noqa: PLC0415  only the workers need it

    if name == "tiny":
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    if name == "digits":
        convolutions = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()]
        return nn.Sequential(
            *convolutions, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 10)
        )
    sizes = [64, 1024, 1024, 1024, 512]
    dense = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *dense, nn.Linear(512, 10))


def worker(name: str, rounds: int, block: int) -> None:
    """One worker of one repetition; the first prints the seconds of each round's blocks."""
    import torch  # noqa: PLC0415

    import mlcd.torch  # noqa: PLC0415
    from mlcd.training.training_progress import current_progress  # noqa: PLC0415

    torch.set_num_threads(1)
    rank = mlcd.torch.init()
    workers = torch.distributed.get_world_size()
    share = (192 if name == "digits" else 64) // workers
    torch.manual_seed(0)
    models = {
        "plain": mlcd.torch.parallel(network(name), noise=False),
        "bare": mlcd.torch.parallel(network(name), noise=False, gradient_as_bucket_view=True),
        "watched": mlcd.torch.parallel(network(name), noise=True),
    }
    optimizers = {kind: torch.optim.SGD(model.parameters(), lr=0.01) for kind, model in models.items()}
    torch.manual_seed(rank + 1)
    images, labels = torch.rand(share, 1, 8, 8), torch.randint(10, (share,))

    def train(kind: str) -> float:
        torch.distributed.barrier()
        begun = time.perf_counter()
        for _ in range(block):
            optimizers[kind].zero_grad()
            loss: Any = torch.nn.functional.cross_entropy(models[kind](images), labels)
            loss.backward()
            optimizers[kind].step()
            current_progress().advance(share * workers)
        return time.perf_counter() - begun

    for kind in (*models, *models):  # warm up, and let the watch learn its cost
        train(kind)
    seconds = []
    for one in range(rounds):
        order = ORDERS[one % len(ORDERS)]
        seconds.append({kind: train(kind) for kind in order})
    if rank == 0:
        print(json.dumps(seconds))  # read by `repetition`
    torch.distributed.barrier()


def repetition(name: str, form: str, workers: int, rounds: int, block: int) -> dict[str, Any]:
    """The median slowdowns of its rounds, milliseconds per step, and the measured share of steps as one in N."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder) / "progress.jsonl"
        command = [
            sys.executable,
            __file__,
            "--worker",
            name,
            "--rounds",
            str(rounds),
            "--block",
            str(block),
        ]
        shared = {
            **os.environ,
            "WORLD_SIZE": str(workers),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "MLCD_TOPOLOGY": form,
            "MLCD_PROGRESS_FILE": str(progress),
            "OMP_NUM_THREADS": "1",
        }
        started = [
            subprocess.Popen(command, env={**shared, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
            for rank in range(workers)
        ]
        try:
            said = [process.communicate(timeout=600)[0] for process in started]
        finally:
            for process in started:
                process.kill()
        if any(process.returncode for process in started):
            raise SystemExit(f"noise_overhead: a worker failed ({[process.returncode for process in started]})")
        seconds = json.loads(said[0].splitlines()[-1])
        lines = [json.loads(line) for line in progress.read_text(encoding="utf-8").splitlines()]
        reports = [line for line in lines if "noise" in line]
    return {
        "slowdown": statistics.median(one["watched"] / one["plain"] - 1 for one in seconds),
        "slowdown_to_bare": statistics.median(one["watched"] / one["bare"] - 1 for one in seconds),
        **{f"{kind}_step_ms": 1000 * statistics.median(one[kind] for one in seconds) / block for kind in seconds[0]},
        "steps_a_measurement": (rounds + 2) * block / max(1, len(reports)),
    }


def parts() -> pages.Parts:
    """What the page says of the record, by its name there."""
    record = json.loads(RESULT.read_text(encoding="utf-8"))
    machine, rows = record["machine"], record["rows"]
    lines = [
        (
            f"{record['when'][:10]}, {record['workers']} workers of one thread on {machine['cores']} processors with a"
            f" load of {machine['load']:.0f}, themselves included; medians of {len(rows[0]['repetitions'])}"
            " repetitions, in brackets the least and the most."
        ),
        "",
        "| network | topology | a step | measured | slowdown to plain | to bare |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        done = row["repetitions"]
        step = statistics.median(one["watched_step_ms"] for one in done)
        every = statistics.median(one["steps_a_measurement"] for one in done)
        slowdowns = (
            f"{row[f'median_{name}']:.1%} ({100 * row[f'least_{name}']:.1f} to {100 * row[f'most_{name}']:.1f})"
            for name in ("slowdown", "slowdown_to_bare")
        )
        label = f"{row['network']}: {row['what']}"
        lines.append(f"| {label} | {row['topology']} | {step:.1f} ms | one in {every:.0f} | {' | '.join(slowdowns)} |")
    return {PAGE: {"noise-overhead": "\n".join(lines)}}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--repetitions", type=int, default=5)
    options.add_argument("--networks", default=",".join(NETWORKS))
    options.add_argument("--forms", default="ring,ps")
    options.add_argument("--rounds", type=int, default=36)
    options.add_argument("--block", type=int, default=10, help="steps")
    options.add_argument("--worker", help=argparse.SUPPRESS)
    options.add_argument("--result", type=Path, default=RESULT)
    given = options.parse_args()
    if given.worker:
        worker(given.worker, given.rounds, given.block)
        return
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for _ in range(given.repetitions):  # all networks in turns, for the same reason
        for name in given.networks.split(","):
            for form in given.forms.split(","):
                done = repetition(name, form, given.workers, given.rounds, given.block)
                rows.setdefault((name, form), []).append(done)
                print(name, form, {key: round(value, 4) for key, value in done.items()}, flush=True)
    result = {
        "code": pages.sources(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]},
        "workers": given.workers,
        "rounds": given.rounds,
        "block_steps": given.block,
        "rows": [
            {
                "network": network_name,
                "what": NETWORKS[network_name],
                "topology": form,
                **{
                    f"{which}_{name}": pick(one[name] for one in done)
                    for name in ("slowdown", "slowdown_to_bare")
                    for which, pick in (("median", statistics.median), ("least", min), ("most", max))
                },
                "repetitions": done,
            }
            for (network_name, form), done in rows.items()
        ],
    }
    given.result.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
