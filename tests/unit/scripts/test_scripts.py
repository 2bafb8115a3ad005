"""A training script is read, never run: where its loop is, and the lines that it needs."""

import ast
from pathlib import Path

import pytest

from mlcd.errors import BadInput
from mlcd.scripts import Framework, TrainingScript, find_scripts, read_script

PLAIN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 3
x = torch.randn(1000, 4)
loader = DataLoader(TensorDataset(x, x), batch_size=16, shuffle=True, num_workers=2)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(EPOCHS):
    for a, b in loader:
        optimizer.zero_grad()
        loss = ((model(a) - b) ** 2).mean()
        loss.backward()
        optimizer.step()
torch.save(model.state_dict(), "model.pt")
"""


def read(folder: Path, text: str, name: str = "train.py") -> TrainingScript:
    (folder / name).write_text(text, encoding="utf-8")
    return read_script(folder / name)


def test_arguments_that_the_script_needs_are_named(tmp_path: Path) -> None:
    options = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("config", nargs="?")
parser.add_argument("--save", "-s", required=True)
parser.add_argument("--lr", type=float)
parser.add_argument("--seed", default=1, required=False)
parser.add_argument()
"""
    found = read(tmp_path, f"{options}{PLAIN}")
    assert [note for note in found.notes if "needs" in note] == [
        "line 3: the script needs data: add it to `run` in the job file",
        "line 5: the script needs --save: add it to `run` in the job file",
    ]


def test_a_plain_loop_gets_its_lines(tmp_path: Path) -> None:
    found = read(tmp_path, PLAIN)
    assert (found.framework, found.line) == (Framework.PYTORCH, 10)
    assert (found.batch, found.epochs, found.samples, found.outputs) == (16, 3, 1000, ("model.pt",))
    assert found.several_nodes
    assert found.keeps_work
    assert (
        found.edited
        == """\
import torch
from torch.utils.data import DataLoader, TensorDataset
import mlcd
import mlcd.torch

EPOCHS = 3
x = torch.randn(1000, 4)
loader = mlcd.torch.loader(TensorDataset(x, x), batch_size=16, num_workers=2)
model = torch.nn.Linear(4, 4)
model = mlcd.torch.parallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
mlcd.torch.checkpoint(model=model, optimizer=optimizer)
for epoch in mlcd.epochs(EPOCHS):
    for a, b in mlcd.steps(loader, batch_size=16):
        optimizer.zero_grad()
        loss = ((model(a) - b) ** 2).mean()
        loss.backward()
        optimizer.step()
torch.save(model.module.state_dict(), "model.pt")
"""
    )
    assert "+    for a, b in mlcd.steps(loader, batch_size=16):" in found.diff()


def test_what_was_edited_needs_no_more_edits(tmp_path: Path) -> None:
    again = read(tmp_path, read(tmp_path, PLAIN).edited)
    assert again.is_ready
    assert again.edits == ()
    assert (again.batch, again.epochs, again.samples) == (16, 3, 1000)
    assert again.keeps_work
    assert again.several_nodes


def test_a_loop_in_a_function_with_arguments_and_wrappers(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """\
import argparse
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import CIFAR10
from tqdm import tqdm


def one_epoch(net, data, opt):
    for i, (x, y) in enumerate(tqdm(data)):
        torch.nn.functional.cross_entropy(net(x), y).backward()
        opt.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", default=128, type=int)
    parser.add_argument("-e", "--epochs", type=int, default=7)
    args = parser.parse_args()
    test_loader = DataLoader(CIFAR10("d", train=False), batch_size=1000)
    train_loader = DataLoader(
        CIFAR10("d"),
        batch_size=args.batch_size,
        shuffle=True,
    )
    net = torch.nn.Linear(4, 4)
    opt = torch.optim.Adam(net.parameters())
    for epoch in range(args.epochs):
        one_epoch(net, train_loader, opt)
""",
    )
    assert (found.line, found.batch, found.epochs, found.samples) == (9, 128, 7, 50_000)
    assert "enumerate(tqdm(mlcd.steps(data)))" in found.edited
    assert 'train_loader = mlcd.torch.loader(CIFAR10("d"), batch_size=args.batch_size)' in found.edited
    assert "    net = mlcd.torch.parallel(net)\n    opt = " in found.edited
    ast.parse(found.edited)


def test_batches_taken_by_their_places_are_read(tmp_path: Path) -> None:
    """`for i in range(0, len(x), BATCH)`: the batch and the samples are those of the range."""
    found = read(
        tmp_path,
        """\
import torch
BATCH = 32
x = torch.randn(640, 4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(1, 5):
    for start in range(0, len(x), BATCH):
        model(x[start : start + BATCH]).mean().backward()
        optimizer.step()
""",
    )
    assert (found.batch, found.samples, found.epochs) == (32, 640, 4)
    assert "for start in mlcd.steps(range(0, len(x), BATCH), batch_size=BATCH):" in found.edited
    assert "for epoch in mlcd.epochs(range(1, 5)):" in found.edited
    assert read(tmp_path, found.edited).epochs == 4


def test_a_batch_that_the_loop_cannot_see_is_left_to_the_job_file(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """\
import torch
from torch.utils.data import DataLoader

def one_epoch(model, loader, optimizer):
    for x in loader:
        model(x).mean().backward()
        optimizer.step()

def main():
    size = 16
    loader = DataLoader(torch.randn(64, 4), batch_size=size)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        one_epoch(model, loader, optimizer)
""",
    )
    assert found.batch == 16
    assert "for x in mlcd.steps(loader):" in found.edited
    assert any(note.startswith("line 14: this loop starts again after a checkpoint") for note in found.notes)


def test_a_script_that_is_distributed_keeps_its_own(tmp_path: Path) -> None:
    text = PLAIN.replace(
        "optimizer = torch", "model = torch.nn.parallel.DistributedDataParallel(model)\noptimizer = torch"
    )
    found = read(tmp_path, text)
    assert found.several_nodes
    assert "mlcd.torch.parallel" not in found.edited
    assert "mlcd.torch.loader" not in found.edited
    assert "mlcd.steps(loader)" in found.edited


def test_a_loader_made_in_the_loop_is_shared_too(tmp_path: Path) -> None:
    text = PLAIN.replace("    for a, b in loader:", "    for a, b in DataLoader(TensorDataset(x, x), batch_size=8):")
    found = read(tmp_path, text)
    assert "for a, b in mlcd.steps(mlcd.torch.loader(TensorDataset(x, x), batch_size=8), batch_size=8):" in found.edited
    ast.parse(found.edited)


def test_what_cannot_be_changed_is_said(tmp_path: Path) -> None:
    text = PLAIN.replace(
        "loader = DataLoader(TensorDataset(x, x), batch_size=16, shuffle=True, num_workers=2)", "loader = my_batches(x)"
    )
    found = read(tmp_path, text)
    assert any("mlcd.torch.loader" in note for note in found.notes)
    assert not found.several_nodes
    assert found.batch is None
    assert found.samples is None


HUGGING_FACE = """\
from transformers import Trainer, TrainingArguments

args = TrainingArguments(output_dir="out", per_device_train_batch_size=8, num_train_epochs=2)
trainer = Trainer(
    model=model,
    args=args,
)
trainer.train()
trainer.save_model("model")
"""


def test_hugging_faces_trainer_gets_a_callback(tmp_path: Path) -> None:
    found = read(tmp_path, HUGGING_FACE)
    assert (found.framework, found.line, found.batch, found.epochs) == (Framework.HUGGING_FACE, 4, 8, 2)
    assert found.outputs == ("model",)
    assert ")\ntrainer.add_callback(mlcd.torch.TrainerProgress())\ntrainer.train()" in found.edited
    assert "per_device_train_batch_size=mlcd.share_of_batch(8)," in found.edited
    assert "import mlcd\nimport mlcd.torch\n" in found.edited
    again = read(tmp_path, found.edited)
    assert again.is_ready
    assert again.edits == ()
    assert again.batch == 8


def test_lightnings_trainer_gets_a_callback(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "import lightning as L\nfrom torch.utils.data import DataLoader\n"
        "def main():\n    data = DataLoader(d, batch_size=4)\n    t = L.Trainer(max_epochs=3)\n    t.fit(m, data)\n",
    )
    assert (found.framework, found.line, found.batch, found.epochs) == (Framework.LIGHTNING, 5, 4, 3)
    assert "    t.callbacks.append(mlcd.torch.LightningProgress())\n    t.fit(m, data)" in found.edited
    assert any("num_nodes" in note for note in found.notes)
    assert not found.several_nodes


def test_keras_fit_gets_a_callback(tmp_path: Path) -> None:
    found = read(tmp_path, "import keras\nmodel.fit(\n    x, y,\n    batch_size=32, epochs=4,\n)\n")
    assert (found.framework, found.batch, found.epochs) == (Framework.TENSORFLOW, 32, 4)
    assert "callbacks=[mlcd.keras.Progress(batch_size=32)])" in found.edited
    ast.parse(found.edited)
    other = read(tmp_path, "import keras\nmodel.fit(x, y, callbacks=[mine])\n")
    assert any("mlcd.keras.Progress" in note for note in other.notes)


def test_the_likeliest_script_comes_first(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a.py", "deep/train.py", "train_big.py"):
        (tmp_path / name).write_text(PLAIN, encoding="utf-8")
    (tmp_path / "broken.py").write_text("def (", encoding="utf-8")
    (tmp_path / "other.py").write_text("print(1)\n", encoding="utf-8")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "link.py").symlink_to(tmp_path / "a.py")
    names = [found.path.relative_to(tmp_path).as_posix() for found in find_scripts(tmp_path)]
    assert names == ["train_big.py", "deep/train.py", "a.py"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"print(1)\n", "no training loop that mlcd recognises"),
        (b"def (\n", "is not Python"),
        (b"\xff\xfe\x00", "is not a Python script in UTF-8"),
        (b"x" * (2**20 + 1), "train.py"),
    ],
)
def test_a_script_that_cannot_be_used_is_named(tmp_path: Path, text: bytes, says: str) -> None:
    (tmp_path / "train.py").write_bytes(text)
    with pytest.raises(BadInput, match=says):
        read_script(tmp_path / "train.py")
    with pytest.raises(BadInput, match=r"nothing\.py"):
        read_script(tmp_path / "nothing.py")


def _checkpoint(text: str) -> tuple[str, str]:
    """(the line after which the checkpoint is inserted, the inserted line)."""
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if "mlcd.torch.checkpoint(" in line)
    return lines[at - 1].strip(), lines[at].strip()


OPTIMIZER = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"


def test_the_checkpoint_has_the_scheduler_and_the_scaler(tmp_path: Path) -> None:
    more = (
        f"{OPTIMIZER}criterion = torch.nn.MSELoss()\n"
        "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)\n"
        'scaler = torch.amp.GradScaler("cpu")\nprint("ready")\n'
    )
    after, line = _checkpoint(read(tmp_path, PLAIN.replace(OPTIMIZER, more)).edited)
    assert after == 'scaler = torch.amp.GradScaler("cpu")'
    assert line == "mlcd.torch.checkpoint(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)"


def test_a_scaler_made_before_the_optimizer_is_saved_too(tmp_path: Path) -> None:
    found = read(tmp_path, PLAIN.replace(OPTIMIZER, f"amp = GradScaler()\n{OPTIMIZER}"))
    after, line = _checkpoint(found.edited)
    assert after == OPTIMIZER.strip()
    assert line == "mlcd.torch.checkpoint(model=model, optimizer=optimizer, amp=amp)"


def test_schedulers_inside_another_are_saved_by_it(tmp_path: Path) -> None:
    more = (
        f"{OPTIMIZER}warm = LinearLR(optimizer)\ncosine = CosineAnnealingLR(optimizer, T_max=3)\n"
        "schedule = SequentialLR(optimizer, schedulers=[warm, cosine], milestones=[1])\n"
    )
    _, line = _checkpoint(read(tmp_path, PLAIN.replace(OPTIMIZER, more)).edited)
    assert line == "mlcd.torch.checkpoint(model=model, optimizer=optimizer, schedule=schedule)"


def test_the_checkpoint_comes_after_what_prepares_model_and_optimizer(tmp_path: Path) -> None:
    more = f"{OPTIMIZER}model, optimizer = accelerator.prepare(model, optimizer)\n"
    after, _ = _checkpoint(read(tmp_path, PLAIN.replace(OPTIMIZER, more)).edited)
    assert after == "model, optimizer = accelerator.prepare(model, optimizer)"


def test_a_scheduler_of_both_branches_is_saved_and_one_of_a_condition_is_said(tmp_path: Path) -> None:
    both = (
        f"{OPTIMIZER}if EPOCHS > 2:\n    scheduler = StepLR(optimizer, 1)\n"
        "else:\n    scheduler = ConstantLR(optimizer)\n"
    )
    after, line = _checkpoint(read(tmp_path, PLAIN.replace(OPTIMIZER, both)).edited)
    assert (after, "scheduler=scheduler" in line) == ("scheduler = ConstantLR(optimizer)", True)
    assert not line.startswith(" ")
    one = f"{OPTIMIZER}scheduler = None\nif EPOCHS > 2:\n    scheduler = StepLR(optimizer, 1)\n"
    found = read(tmp_path, PLAIN.replace(OPTIMIZER, one))
    _, line = _checkpoint(found.edited)
    assert "scheduler" not in line
    assert any("scheduler" in note and "mlcd.torch.checkpoint" in note for note in found.notes)


def test_what_the_loader_does_otherwise_is_said(tmp_path: Path) -> None:
    said = [note for note in read(tmp_path, PLAIN).notes if "mlcd.torch.loader" in note]
    assert said
    assert "incomplete last batch" in said[0]
    plain = PLAIN.replace("shuffle=True, num_workers=2", "shuffle=False, drop_last=True")
    (other,) = [note for note in read(tmp_path, plain).notes if "mlcd.torch.loader" in note]
    assert "shuffle=False" in other
    same = PLAIN.replace("shuffle=True,", "shuffle=True, drop_last=True,")
    assert not [note for note in read(tmp_path, same).notes if "mlcd.torch.loader" in note]


def test_a_sampler_of_ones_own_is_not_dropped(tmp_path: Path) -> None:
    found = read(tmp_path, PLAIN.replace("shuffle=True", "sampler=mine"))
    assert "sampler=mine" in found.edited
    assert not found.several_nodes


@pytest.mark.parametrize(
    ("loop", "epochs"),
    [
        ("range(1, args.epochs + 1)", 5),
        ("range(0, args.epochs)", 5),
        ("range(start, args.epochs)", 5),
        ("tqdm(range(1, 1 + 2 * EPOCHS))", 6),
        ("range(unknown(), args.epochs)", None),
        ("range(args.epochs, 1)", None),
        ("range(1, 9, 2)", None),
        ("range(again)", None),
        ("range(1 // ZERO, 3)", None),
    ],
)
def test_epochs_are_read_from_sums_and_defaults(tmp_path: Path, loop: str, epochs: int | None) -> None:
    parsed = "parser.add_argument('--epochs', type=int, default=5)\nargs = parser.parse_args()\n"
    defined = f"{parsed}start = ZERO = 0\nagain = again + 1\n"
    found = read(tmp_path, PLAIN.replace("EPOCHS = 3\n", f"EPOCHS = 3\n{defined}").replace("range(EPOCHS)", loop))
    assert found.epochs == epochs


@pytest.mark.parametrize(
    ("split", "samples"),
    [
        ("train, test = random_split(data, [800, 200])", 800),
        ("test, train = torch.utils.data.random_split(data, lengths=(200, 800))", 800),
        ("train, test = random_split(data, [0.9, 0.1])", 900),
        ("n = int(0.7 * len(data))\ntrain, test = random_split(data, [n, len(data) - n])", 700),
        ("n = len(data) // 10\ntrain, test = random_split(data, [len(data) - n, n])", 900),
        ("train, test = random_split(data, [len(train), 2])", None),
        ("train, test = random_split(data, [f(3), 2])", None),
        ("train = torch.randn(len(train), 2)", None),
    ],
)
def test_the_part_of_a_split_that_is_trained_on_is_counted(tmp_path: Path, split: str, samples: int | None) -> None:
    text = PLAIN.replace(
        "loader = DataLoader(TensorDataset(x, x),", f"data = TensorDataset(x, x)\n{split}\nloader = DataLoader(train,"
    )
    assert read(tmp_path, text).samples == samples
