"""Small ONNX models of commonly served kinds, with random but reproducible weights.

    python benchmarks/serving_models.py FOLDER [NAME ...]

writes FOLDER/NAME.onnx for every name (all of them by default) and prints what it wrote. Models with random weights
run as fast as trained ones; what matters here are their operators and sizes. Every model has a dynamic first axis, the
batch, and takes one item in less than about 50 ms on one processor.
"""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from serving_net import Net


def _mlp(widths: list[int]) -> Callable[[Net, Path], Path]:
    def build(net: Net, folder: Path) -> Path:
        x = net.input("input", widths[0])
        for inside, outside in itertools.pairwise(widths[:-1]):
            x = net.dense(x, inside, outside, "Relu")
        return net.save(folder, net.dense(x, widths[-2], widths[-1]), widths[-1])

    return build


def _cnn(net: Net, folder: Path) -> Path:
    x = net.input("input", 1, 28, 28)
    for filters in (16, 32):
        x = net.pool(net.conv(x, filters, 5, norm=False))
    x = net.dense(net.op("Flatten", x, axis=1), 32 * 7 * 7, 128, "Relu")
    return net.save(folder, net.op("Softmax", net.dense(x, 128, 10), axis=-1), 10)


def _vgg(net: Net, folder: Path) -> Path:
    x = net.input("input", 3, 64, 64)
    for filters, count in ((32, 2), (64, 2), (128, 2), (256, 2)):
        for _ in range(count):
            x = net.conv(x, filters, norm=False)
        x = net.pool(x)
    x = net.dense(net.op("Flatten", x, axis=1), 256 * 4 * 4, 2048, "Relu")
    return net.save(folder, net.dense(net.dense(x, 2048, 2048, "Relu"), 2048, 100), 100)


def _resnet(stages: tuple[int, ...], width: int, size: int, *, bottleneck: bool = False) -> Callable[[Net, Path], Path]:
    def build(net: Net, folder: Path) -> Path:
        x = net.pool(net.conv(net.input("input", 3, size, size), width, 7, stride=2), 3)
        for stage, blocks in enumerate(stages):
            filters = width * 2**stage
            out = 4 * filters if bottleneck else filters
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                y = net.conv(x, filters, 1 if bottleneck else 3, stride=stride)
                y = net.conv(y, filters) if bottleneck else y
                y = net.conv(y, out, 1 if bottleneck else 3, act="")
                short = x if stride == 1 and net.channels[x] == out else net.conv(x, out, 1, stride=stride, act="")
                z = net.add(y, short)
                x = net.activate(z, "Relu")
                net.channels[x] = out
        return net.save(folder, net.head(x, 100), 100)

    return build


def _mobilenet(net: Net, folder: Path) -> Path:
    x = net.conv(net.input("input", 3, 96, 96), 16, stride=2, act="Relu")
    for filters, stride in ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (256, 1), (512, 2)):
        x = net.conv(x, net.channels[x], stride=stride, groups=net.channels[x])
        x = net.conv(x, filters, 1)
    return net.save(folder, net.head(x, 100), 100)


def _densenet(net: Net, folder: Path) -> Path:
    x = net.pool(net.conv(net.input("input", 3, 64, 64), 32, 5, stride=2))
    for block, layers in enumerate((4, 6, 6)):
        for _ in range(layers):
            x = net.concat(x, net.conv(net.conv(x, 64, 1), 16))
        if block < 2:
            x = net.pool(net.conv(x, net.channels[x] // 2, 1), kind="AveragePool")
    return net.save(folder, net.head(x, 100), 100)


def _inception(net: Net, folder: Path) -> Path:
    x = net.pool(net.conv(net.input("input", 3, 96, 96), 32, 5, stride=2))
    for filters in (32, 48, 64):
        one = net.conv(x, filters, 1)
        three = net.conv(net.conv(x, filters // 2, 1), filters)
        five = net.conv(net.conv(x, filters // 4, 1), filters // 2, 5)
        pooled = net.conv(net.pool(x, 3, stride=1), filters // 2, 1)
        x = net.concat(one, three, five, pooled)
        x = net.pool(x)
    return net.save(folder, net.head(x, 100), 100)


def _efficientnet(net: Net, folder: Path) -> Path:
    x = net.conv(net.input("input", 3, 96, 96), 16, stride=2, act="Swish")
    for filters, stride in ((24, 2), (24, 1), (40, 2), (40, 1), (80, 2), (80, 1)):
        wide = net.conv(x, 4 * net.channels[x], 1, act="Swish")
        wide = net.conv(wide, net.channels[wide], 5, stride=stride, groups=net.channels[wide], act="Swish")
        squeezed = net.op("GlobalAveragePool", wide)
        net.channels[squeezed] = net.channels[wide]
        gate = net.conv(
            net.conv(squeezed, 8, 1, norm=False, act="Swish"), net.channels[wide], 1, norm=False, act="Sigmoid"
        )
        gated = net.op("Mul", wide, gate)
        net.channels[gated] = net.channels[wide]
        y = net.conv(gated, filters, 1, act="")
        x = net.add(x, y) if stride == 1 and net.channels[x] == filters else y
    return net.save(folder, net.head(x, 100), 100)


def _yolo(net: Net, folder: Path) -> Path:
    x = net.input("input", 3, 96, 96)
    taps = []
    for filters in (16, 32, 64, 128):
        x = net.conv(x, filters, stride=2, act="LeakyRelu")
        x = net.add(x, net.conv(net.conv(x, filters // 2, 1, act="LeakyRelu"), filters, act="LeakyRelu"))
        taps.append(x)
    scales = net.constant(np.array([1, 1, 2, 2], dtype=np.float32))
    up = net.op("Resize", net.conv(x, 64, 1, act="LeakyRelu"), "", scales, mode="nearest")
    net.channels[up] = 64
    x = net.conv(net.concat(up, taps[2]), 128, act="LeakyRelu")
    return net.save(folder, net.conv(x, 3 * 15, 1, norm=False, act=""), 45, 12, 12)


def _generator(net: Net, folder: Path) -> Path:
    x = net.op("Reshape", net.dense(net.input("input", 100), 100, 256 * 16, "Relu"), net.shape(0, 256, 4, 4))
    inside = 256
    for outside in (128, 64, 32, 3):
        w = net.weight(inside, outside, 4, 4, fan_in=inside * 4)
        x = net.op("ConvTranspose", x, w, strides=[2, 2], pads=[1, 1, 1, 1])
        x = net.op("Tanh" if outside == 3 else "Relu", x)
        inside = outside
    return net.save(folder, x, 3, 64, 64)


def _recurrent(kind: str, hidden: int) -> Callable[[Net, Path], Path]:
    def build(net: Net, folder: Path) -> Path:
        x = net.embed(net.input("ids", 32, integer=True), 5000, 128)
        x = net.recurrent(net.recurrent(x, kind, 128, hidden), kind, hidden, hidden)
        return net.save(folder, net.dense(net.mean(x, 1), hidden, 20), 20)

    return build


def _bert(width: int, heads: int, length: int, layers: int) -> Callable[[Net, Path], Path]:
    def build(net: Net, folder: Path) -> Path:
        x = net.embed(net.input("ids", length, integer=True), 8000, width)
        x = net.layer_norm(net.op("Add", x, net.weight(length, width, fan_in=width)), width)
        x = net.encoder(x, width, heads, length, layers)
        return net.save(folder, net.dense(net.op("Tanh", net.mean(x, 1)), width, 2), 2)

    return build


def _vit(net: Net, folder: Path) -> Path:
    patches = net.conv(net.input("input", 3, 64, 64), 192, 8, stride=8, norm=False, act="")
    # A kernel of 8 with a border of 4 and steps of 8 gives 9 x 9 patches.
    x = net.op("Transpose", net.op("Reshape", patches, net.shape(0, 192, 81)), perm=[0, 2, 1])
    x = net.op("Add", x, net.weight(81, 192, fan_in=192))
    return net.save(folder, net.dense(net.mean(net.encoder(x, 192, 3, 81, 4), 1), 192, 100), 100)


def _ncf(net: Net, folder: Path) -> Path:
    user, item = net.input("user", 1, integer=True), net.input("item", 1, integer=True)
    flat = [net.op("Flatten", net.embed(ids, rows, 64), axis=1) for ids, rows in ((user, 20000), (item, 10000))]
    product = net.op("Mul", *[net.op("Flatten", net.embed(ids, 10000, 32), axis=1) for ids in (user, item)])
    x = net.dense(net.dense(net.op("Concat", *flat, axis=1), 128, 256, "Relu"), 256, 128, "Relu")
    return net.save(folder, net.op("Sigmoid", net.dense(net.op("Concat", x, product, axis=1), 160, 1)), 1)


def _dcn(net: Net, folder: Path) -> Path:
    dense, ids = net.input("dense", 13), net.input("ids", 26, integer=True)
    start = net.op("Concat", dense, net.op("Flatten", net.embed(ids, 20000, 32), axis=1), axis=1)
    width = 13 + 26 * 32
    x = start
    for _ in range(3):
        x = net.op("Add", net.op("Mul", start, net.dense(x, width, width)), x)
    deep = net.dense(net.dense(start, width, 512, "Relu"), 512, 256, "Relu")
    return net.save(folder, net.op("Sigmoid", net.dense(net.op("Concat", x, deep, axis=1), width + 256, 1)), 1)


def _text_cnn(net: Net, folder: Path) -> Path:
    x = net.op("Transpose", net.embed(net.input("ids", 64, integer=True), 8000, 128), perm=[0, 2, 1])
    found = []
    for kernel in (3, 5, 7):
        w = net.weight(128, 128, kernel, fan_in=128 * kernel)
        y = net.op("Relu", net.op("Conv", x, w, net.zeros(128), pads=[kernel // 2] * 2))
        found.append(net.op("Flatten", net.op("GlobalMaxPool", y), axis=1))
    return net.save(folder, net.dense(net.op("Concat", *found, axis=1), 384, 20), 20)


def _autoencoder(net: Net, folder: Path) -> Path:
    x = net.input("input", 1, 64, 64)
    for filters in (16, 32, 64):
        x = net.conv(x, filters, stride=2)
    x = net.dense(net.op("Flatten", x, axis=1), 64 * 64, 64)
    x = net.op("Reshape", net.dense(x, 64, 64 * 64, "Relu"), net.shape(0, 64, 8, 8))
    inside = 64
    for outside in (32, 16, 1):
        x = net.op(
            "ConvTranspose", x, net.weight(inside, outside, 4, 4, fan_in=4 * inside), strides=[2, 2], pads=[1] * 4
        )
        x = net.op("Sigmoid" if outside == 1 else "Relu", x)
        inside = outside
    return net.save(folder, x, 1, 64, 64)


MODELS: dict[str, tuple[str, Callable[[Net, Path], Path]]] = {
    "mlp-small": ("mlp", _mlp([256, 256, 256, 10])),
    "mlp-wide": ("mlp", _mlp([1024, 2048, 2048, 2048, 2048, 1000])),
    "mlp-deep": ("mlp", _mlp([512] + [768] * 10 + [100])),
    "cnn-small": ("cnn", _cnn),
    "vgg-like": ("vgg", _vgg),
    "resnet18-like": ("resnet", _resnet((2, 2, 2, 2), 32, 96)),
    "resnet50-like": ("resnet", _resnet((3, 4, 6, 3), 24, 96, bottleneck=True)),
    "mobilenet-like": ("mobilenet", _mobilenet),
    "densenet-like": ("densenet", _densenet),
    "inception-like": ("inception", _inception),
    "efficientnet-like": ("efficientnet", _efficientnet),
    "yolo-like": ("detector", _yolo),
    "dcgan-like": ("generator", _generator),
    "autoencoder": ("generator", _autoencoder),
    "lstm": ("recurrent", _recurrent("LSTM", 192)),
    "gru": ("recurrent", _recurrent("GRU", 192)),
    "bert-tiny": ("transformer", _bert(128, 2, 32, 2)),
    "bert-small": ("transformer", _bert(256, 4, 64, 4)),
    "vit-small": ("transformer", _vit),
    "ncf": ("recommender", _ncf),
    "dcn": ("recommender", _dcn),
    "text-cnn": ("text", _text_cnn),
}
"""By name: the family, and the function that builds it."""


def build(folder: Path, *names: str) -> dict[str, Path]:
    """The models of these names (default: all) in `folder`; builds those that are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in names or tuple(MODELS):
        path = folder / f"{name}.onnx"
        found[name] = path if path.exists() else MODELS[name][1](Net(name), folder)
    return found


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name, path in build(Path(sys.argv[1]), *sys.argv[2:]).items():
        print(f"{name:20} {MODELS[name][0]:14} {path.stat().st_size / 2**20:7.1f} MiB")
