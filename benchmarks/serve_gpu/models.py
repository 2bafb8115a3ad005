"""The models: none is in a shipped table (src/mlcd/known). Random weights; speed does not depend on them.

python -m serve_gpu.models FOLDER NAME...
"""

import sys
from pathlib import Path
from typing import Any

IMAGE, WORDS = 224, 128
NAMES = ("vit-large", "convnext-base", "regnet-y", "albert-large", "electra-large")


def main() -> None:
    """Write the files of the named models."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:]:
        write(folder / f"{name}.pt2", name.removeprefix("tiny-"), tiny=name.startswith("tiny-"))


def write(path: Path, name: str, *, tiny: bool) -> None:
    """Export one model with an open batch axis."""
    import torch  # noqa: PLC0415 - the names are read without it

    torch.manual_seed(0)
    module, example = _text(torch, name, tiny) if name.startswith(("albert", "electra")) else _image(torch, name, tiny)
    batch = {0: torch.export.Dim("batch", min=1, max=4096)}
    with torch.no_grad():
        program = torch.export.export(module.eval(), (example,), dynamic_shapes=(batch,))
    torch.export.save(program, path)
    print(f"{path.name}: {sum(p.numel() for p in module.parameters()) / 1e6:.1f} M parameters", flush=True)


def _image(torch: Any, name: str, tiny: bool) -> tuple[Any, Any]:
    import transformers as hf  # noqa: PLC0415

    if name == "vit-large":
        size = (64, 2, 2, 128) if tiny else (1024, 24, 16, 4096)
        config = hf.ViTConfig(
            hidden_size=size[0], num_hidden_layers=size[1], num_attention_heads=size[2], intermediate_size=size[3]
        )
        model = hf.ViTForImageClassification(config)
    elif name == "convnext-base":
        config = hf.ConvNextConfig(
            hidden_sizes=[8, 16, 32, 64] if tiny else [128, 256, 512, 1024],
            depths=[1, 1, 1, 1] if tiny else [3, 3, 27, 3],
        )
        model = hf.ConvNextForImageClassification(config)
    else:
        config = hf.RegNetConfig(
            hidden_sizes=[8, 16, 32, 64] if tiny else [224, 448, 896, 2240],
            depths=[1, 1, 1, 1] if tiny else [2, 4, 10, 1],
            groups_width=8 if tiny else 56,
        )
        model = hf.RegNetForImageClassification(config)

    class Pictures(torch.nn.Module):  # type: ignore[misc]
        """Bytes to logits."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixels: Any) -> Any:
            return self.model(pixels.to(torch.float32) / 255 - 0.5).logits

    return Pictures(), torch.zeros(2, 3, IMAGE, IMAGE, dtype=torch.uint8)


def _text(torch: Any, name: str, tiny: bool) -> tuple[Any, Any]:
    import transformers as hf  # noqa: PLC0415

    sizes = (32, 2, 2, 64, 32) if tiny else (1024, 24, 16, 4096, 128)
    common = {
        "vocab_size": 30522,
        "hidden_size": sizes[0],
        "num_hidden_layers": sizes[1],
        "num_attention_heads": sizes[2],
        "intermediate_size": sizes[3],
        "embedding_size": sizes[4],
    }
    if name.startswith("albert"):
        model = hf.AlbertForSequenceClassification(hf.AlbertConfig(**common))
    else:
        model = hf.ElectraForSequenceClassification(hf.ElectraConfig(**common))

    class Sentences(torch.nn.Module):  # type: ignore[misc]
        """Token numbers to logits."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Any) -> Any:
            return self.model(input_ids=tokens).logits

    return Sentences(), torch.zeros(2, WORDS, dtype=torch.int64)


if __name__ == "__main__":
    main()
