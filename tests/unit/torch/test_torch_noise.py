"""The noise watch of mlcd.torch with one process; several are in tests/integration/test_noise_hook.py."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: scripts/setup-venv test")

import mlcd  # noqa: E402  torch may be missing
import mlcd.torch as mt  # noqa: E402
from mlcd.training.training_progress import current_progress  # noqa: E402


@pytest.fixture(autouse=True)
def progress(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    for name in ("RANK", "WORLD_SIZE", *(name for name in os.environ if name.startswith("MLCD_"))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLCD_PROGRESS_FILE", str(tmp_path / "progress.jsonl"))
    monkeypatch.setenv("MLCD_NOISE_EVERY", "1")
    current_progress.cache_clear()
    torch.manual_seed(0)
    yield tmp_path / "progress.jsonl"
    current_progress.cache_clear()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def lines(progress: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in progress.read_text().splitlines()]


def noises(progress: Path) -> list[tuple[int, dict[str, Any]]]:
    return [(line["samples"], line["noise"]) for line in lines(progress) if "noise" in line]


def network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.ReLU(), torch.nn.Linear(20, 2))


def gradient(model: Any) -> Any:
    return torch.cat([parameter.grad.flatten().double() for parameter in model.parameters()])


def train(model: Any, steps: int = 7, pieces: int = 1) -> list[Any]:
    """The gradient of each step, each with `pieces` backward passes."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for _ in mlcd.steps(range(steps), batch_size=8):
        optimizer.zero_grad()
        for piece in range(pieces):
            data = torch.randn(8, 30, dtype=next(model.parameters()).dtype)
            if piece < pieces - 1:
                with model.no_sync():
                    model(data).square().mean().backward()
            else:
                model(data).square().mean().backward()
        seen.append(gradient(model))
        optimizer.step()
    return seen


@pytest.mark.parametrize("pieces", [1, 3])
def test_one_worker_compares_two_steps(progress: Path, pieces: int) -> None:
    seen = train(mt.parallel(network(), noise=True, bucket_cap_mb=0.001), pieces=pieces)
    found = noises(progress)
    # Buckets are laid out anew after the first step; pairs do not overlap; the last one would be told in a next step.
    assert [samples for samples, _ in found] == [24, 40]
    for (_, noise), now in zip(found, (2, 4), strict=True):
        assert (noise["workers"], noise["batch"]) == (1, 8)
        assert noise["before"] == pytest.approx(seen[now - 1].square().sum().item(), rel=1e-5)
        assert noise["now"] == pytest.approx(seen[now].square().sum().item(), rel=1e-5)
        assert noise["dot"] == pytest.approx((seen[now - 1] @ seen[now]).item(), rel=1e-4, abs=1e-7)


def test_noise_is_measured_at_the_given_interval(progress: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCD_NOISE_EVERY", "4")
    current_progress.cache_clear()
    train(mt.parallel(network(), noise=True), steps=12)
    assert [samples for samples, _ in noises(progress)] == [24, 56, 88]


def test_noise_is_off_by_default(progress: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(mt.parallel(network()))
    assert noises(progress) == []
    monkeypatch.setenv("MLCD_NOISE", "1")
    current_progress.cache_clear()
    train(mt.parallel(network(), noise=False))
    assert noises(progress) == []
    train(mt.parallel(network()))
    assert len(noises(progress)) == 2


def test_measuring_does_not_change_the_training() -> None:
    results = []
    for noise in (False, True):
        torch.manual_seed(0)
        model = mt.parallel(network(), noise=noise)
        results.append(torch.stack(train(model)))
        del model
    assert torch.equal(*results)


def test_half_precision_does_not_overflow(progress: Path) -> None:
    model = mt.parallel(network().to(torch.bfloat16), noise=True)
    seen = train(model)
    assert noises(progress)[0][1]["now"] == pytest.approx(seen[2].square().sum().item(), rel=1e-2)


def test_gradients_that_are_not_finite_are_reported_once(progress: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = mt.parallel(torch.nn.Linear(3, 1), noise=True)
    for step in mlcd.steps(range(12), batch_size=2):
        model.zero_grad()
        model(torch.full((2, 3), float("nan") if 3 < step < 8 else 1.0)).mean().backward()
    found = [noise["now"] for _, noise in noises(progress)]
    assert [value is None for value in found] == [False, True, True, True, False], found
    warnings = [line["warning"] for line in lines(progress) if "warning" in line]
    assert len(warnings) == 1
    assert "not finite" in warnings[0]
    assert "not finite" in capfd.readouterr().err


def test_two_models_are_not_mixed(
    progress: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first = mt.parallel(network(), noise=True)
    with pytest.raises(ValueError, match="another model"):
        mt.parallel(network(), noise=True)
    monkeypatch.setenv("MLCD_NOISE", "1")
    current_progress.cache_clear()
    train(mt.parallel(network()))
    assert "another model" in capfd.readouterr().err
    assert noises(progress) == []
    del first


@pytest.mark.parametrize(
    ("name", "value"), [("MLCD_NOISE_EVERY", "0"), ("MLCD_NOISE_EVERY", "often"), ("MLCD_NOISE", "yes")]
)
def test_bad_variables_are_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    current_progress.cache_clear()
    with pytest.raises(ValueError, match=name):
        mt.parallel(network())
