"""Files that a script saves are found, or the line that saves them is named."""

import ast
from pathlib import Path

import pytest

from mlcd.scripts import TrainingScript, read_script

LOOP = """\
for epoch in range(3):
    for x in loader:
        model(x).mean().backward()
        optimizer.step()
"""

HEAD = """\
import argparse, os
import torch
from pathlib import Path
loader = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=16)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def read(folder: Path, text: str) -> TrainingScript:
    ast.parse(text)
    (folder / "train.py").write_text(text, encoding="utf-8")
    return read_script(folder / "train.py")


@pytest.mark.parametrize(
    ("before", "saving", "outputs"),
    [
        (
            "p = argparse.ArgumentParser()\np.add_argument('--out', default='model.pt')\nargs = p.parse_args()",
            "torch.save(model.state_dict(), args.out)",
            ("model.pt",),
        ),
        (
            "p = argparse.ArgumentParser()\np.add_argument('--save', dest='to', default='m.pt')\nargs = p.parse_args()",
            "torch.save(model.state_dict(), args.to)",
            ("m.pt",),
        ),
        ("OUT = 'a/b.pt'", "torch.save(model.state_dict(), OUT)", ("a/b.pt",)),
        ("FOLDER = Path('runs')", "torch.save(model.state_dict(), FOLDER / 'best' / 'm.pt')", ("runs/best/m.pt",)),
        ("folder = 'runs'", "torch.save(model, os.path.join(folder, 'm.pt'))", ("runs/m.pt",)),
        ("size = 'tiny'", "torch.save(model, f'{size}-model.pt')", ("tiny-model.pt",)),
        ("folder = 'ckpt'", "torch.save(model, f'{folder}/epoch-{epoch}.pt')", ("ckpt",)),
        ("folder = 'ckpt'", "torch.save(model, folder + '/epoch-' + str(epoch) + '.pt')", ("ckpt",)),
        ("", "torch.save(model, 'ckpt/epoch-{}.pt'.format(epoch))", ("ckpt",)),
        ("", "torch.save(model, 'ckpt/epoch-%d.pt' % epoch)", ("ckpt",)),
        ("", "torch.save(obj=model, f='m.pt')", ("m.pt",)),
        ("config = {'out': 'm.pt'}", "torch.save(model, config['out'])", ("m.pt",)),
        ("class Config:\n    out: str = 'm.pt'\nconfig = Config()", "torch.save(model, config.out)", ("m.pt",)),
        ("", "torch.save(model, os.environ.get('OUT', 'm.pt'))", ("m.pt",)),
        ("", "with open('m.pt', 'wb') as file:\n    torch.save(model, file)", ("m.pt",)),
        ("out = Path('m.pt')", "with out.open('wb') as file:\n    torch.save(model, file)", ("m.pt",)),
        ("", "import numpy as np\nnp.save('w.npy', model.weight.detach().numpy())", ("w.npy",)),
        (
            "",
            "from safetensors.torch import save_file\nsave_file(model.state_dict(), 'm.safetensors')",
            ("m.safetensors",),
        ),
        ("", "torch.onnx.export(model, torch.randn(1, 4), 'm.onnx')", ("m.onnx",)),
        ("", "torch.save(model, 'm.pt')\ntorch.save(optimizer, 'm.pt')", ("m.pt",)),
    ],
)
def test_the_name_of_a_saved_file_is_read(tmp_path: Path, before: str, saving: str, outputs: tuple[str, ...]) -> None:
    found = read(tmp_path, f"{HEAD}{before}\n{LOOP}{saving}\n")
    assert found.outputs == outputs
    assert found.unnamed_saves == ()


@pytest.mark.parametrize(
    "text",
    [
        "import click\n@click.command()\n@click.option('--out', default='m.pt')\ndef main(out):\n",
        "import typer\ndef main(out: str = typer.Option('m.pt')):\n",
        "def main(out='m.pt'):\n",
        "def main(*, out=Path('m.pt')):\n",
    ],
)
def test_the_default_of_an_argument_is_read(tmp_path: Path, text: str) -> None:
    body = "".join(f"    {line}\n" for line in f"{HEAD}{LOOP}torch.save(model.state_dict(), out)".splitlines())
    assert read(tmp_path, f"from pathlib import Path\n{text}{body}main()\n").outputs == ("m.pt",)


def test_a_function_that_saves_where_its_caller_says(tmp_path: Path) -> None:
    text = "def keep(net, where):\n    torch.save(net.state_dict(), where)\n"
    assert read(tmp_path, f"{HEAD}{text}{LOOP}keep(model, 'm.pt')\n").outputs == ("m.pt",)
    assert read(tmp_path, f"{HEAD}{text}{LOOP}keep(model, where='n.pt')\n").outputs == ("n.pt",)


@pytest.mark.parametrize(
    ("before", "saving", "shown"),
    [
        ("import sys", "torch.save(model, sys.argv[1])", "sys.argv[1]"),
        (
            "p = argparse.ArgumentParser()\np.add_argument('--out', required=True)\nargs = p.parse_args()",
            "torch.save(model, args.out)",
            "args.out",
        ),
        ("", "torch.save(model, f'model-{epoch}.pt')", "f'model-{epoch}.pt'"),
        ("out = 'a.pt'\nout = 'b.pt'", "torch.save(model, out)", "out"),
        ("", "torch.save(model, name())", "name()"),
    ],
)
def test_a_save_whose_name_is_not_plain_is_named_by_its_line(
    tmp_path: Path, before: str, saving: str, shown: str
) -> None:
    text = f"{HEAD}{before}\n{LOOP}{saving}\n"
    found = read(tmp_path, text)
    assert found.outputs == ()
    (save,) = found.unnamed_saves
    assert save.line == len(text.splitlines())
    assert save.expression == shown


def test_a_file_outside_the_folder_is_no_output_and_is_said(tmp_path: Path) -> None:
    found = read(tmp_path, f"{HEAD}{LOOP}torch.save(model, '/data/m.pt')\ntorch.save(model, '../m.pt')\n")
    assert (found.outputs, found.unnamed_saves) == ((), ())
    assert any("/data/m.pt" in note and "not brought back" in note for note in found.notes)


def test_what_is_saved_into_memory_is_no_file(tmp_path: Path) -> None:
    found = read(tmp_path, f"import io\n{HEAD}{LOOP}buffer = io.BytesIO()\ntorch.save(model, buffer)\n")
    assert (found.outputs, found.unnamed_saves) == ((), ())


def test_a_trainer_saves_into_its_output_folder(tmp_path: Path) -> None:
    text = (
        "from transformers import Trainer, TrainingArguments\n"
        "args = TrainingArguments(output_dir='out', per_device_train_batch_size=8)\n"
        "trainer = Trainer(model=model, args=args)\ntrainer.train()\n"
    )
    assert read(tmp_path, f"{text}trainer.save_model()\n").outputs == ("out",)
    assert read(tmp_path, f"{text}trainer.save_model(args.output_dir)\n").outputs == ("out",)
    assert read(tmp_path, text).outputs == ()
