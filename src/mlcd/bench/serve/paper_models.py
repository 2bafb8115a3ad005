"""The 30 models of Falcon's paper (18 sources, 12 targets), described well enough to be simulated.

The latencies of these models on the paper's machines were not published. These are round figures of the size that
public model cards and vendors' pages give (parameters, milliseconds per item on a V100 in fp32), and estimates of each
measured operator's share of the time. They are inputs of the simulator: no figure derived from them is a measurement.
"""

from collections.abc import Mapping
from dataclasses import dataclass

Shape = tuple[str, str]
"""An operator of the measured tables, and the size at which it was measured."""

CONV_LARGE, CONV, CONV_SMALL = ("conv2d", "128x128"), ("conv2d", "64x64"), ("conv2d", "32x32")
DENSE, DENSE_SMALL = ("dense", "128"), ("dense", "32")
RELU, RELU_SMALL = ("relu", "128x128"), ("relu", "64x64")
ADD, ADD_SMALL = ("add", "128x128"), ("add", "64x64")
MULTIPLY, MULTIPLY_SMALL = ("multiply", "128x128"), ("multiply", "64x64")
BIAS, BIAS_SMALL = ("bias_add", "128x128"), ("bias_add", "64x64")
SIGMOID, SIGMOID_SMALL = ("sigmoid", "128x128"), ("sigmoid", "64x64")
TANH, TANH_SMALL = ("tanh", "128x128"), ("tanh", "64x64")
SUBTRACT = ("subtract", "128x128")


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperModel:
    """A model of the paper.

    item_ms         GPU time of one item of a large batch on a V100 at full power
    kernels         launches per batch of any size
    weights_mib     fp32
    activation_mib  for each item of a batch
    host_ms         time of one CPU core for each item: decoding, tokenising, looking up
    shares          of `item_ms`, by operator and size
    """

    family: str
    item_ms: float
    kernels: int
    weights_mib: float
    activation_mib: float
    host_ms: float
    shares: Mapping[Shape, float]

    def __post_init__(self) -> None:
        if abs(sum(self.shares.values()) - 1) > 1e-6:
            raise ValueError("the operators' shares must add up to 1")


def _model(family: str, sizes: tuple[float, int, float, float, float], shares: Mapping[Shape, float]) -> PaperModel:
    item_ms, kernels, weights_mib, activation_mib, host_ms = sizes
    return PaperModel(
        family=family,
        item_ms=item_ms,
        kernels=kernels,
        weights_mib=weights_mib,
        activation_mib=activation_mib,
        host_ms=host_ms,
        shares=shares,
    )


_RESNET = {CONV_LARGE: 0.34, CONV: 0.26, CONV_SMALL: 0.14, RELU: 0.1, ADD: 0.09, MULTIPLY: 0.05, BIAS: 0.02}
_DENSENET = {CONV: 0.4, CONV_SMALL: 0.18, RELU: 0.19, ADD: 0.05, MULTIPLY: 0.12, BIAS: 0.06}
_INCEPTION = {CONV: 0.46, CONV_SMALL: 0.3, RELU: 0.12, ADD_SMALL: 0.03, MULTIPLY_SMALL: 0.04, BIAS_SMALL: 0.05}
_VGG = {CONV_LARGE: 0.68, CONV: 0.17, DENSE: 0.06, RELU: 0.05, BIAS: 0.04}
_MOBILE = {CONV_SMALL: 0.5, CONV: 0.12, MULTIPLY: 0.13, RELU: 0.12, SIGMOID_SMALL: 0.05, ADD_SMALL: 0.08}
_GAN = {CONV_LARGE: 0.44, CONV: 0.14, DENSE: 0.06, RELU: 0.14, TANH: 0.07, MULTIPLY: 0.09, BIAS: 0.06}
_BERT = {DENSE: 0.6, DENSE_SMALL: 0.08, ADD: 0.09, MULTIPLY: 0.09, TANH: 0.06, BIAS: 0.06, SUBTRACT: 0.02}
_LSTM = {DENSE_SMALL: 0.45, SIGMOID_SMALL: 0.18, TANH_SMALL: 0.12, MULTIPLY_SMALL: 0.13, ADD_SMALL: 0.12}

SOURCES: Mapping[str, PaperModel] = {
    "resnet-152": _model("cnn", (5.4, 520, 230, 11.0, 1.2), _RESNET),
    "densenet-121": _model("cnn", (2.3, 430, 31, 9.0, 1.2), _DENSENET),
    "wgan": _model("gan", (0.55, 30, 14, 3.0, 0.05), {**_GAN, CONV_LARGE: 0.5, TANH: 0.01}),
    "dcgan": _model("gan", (0.4, 28, 14, 2.5, 0.05), _GAN),
    "sgan": _model("gan", (0.8, 45, 22, 4.5, 0.05), {**_GAN, CONV_LARGE: 0.34, RELU: 0.2, MULTIPLY: 0.13}),
    "mobilenet-v3": _model(
        "cnn", (0.4, 180, 21, 3.0, 1.1), {**_MOBILE, SIGMOID_SMALL: 0.1, CONV_SMALL: 0.42, MULTIPLY: 0.16}
    ),
    "inception-resnet-v2": _model("cnn", (6.2, 700, 213, 12.0, 1.6), {**_INCEPTION, CONV: 0.41, ADD_SMALL: 0.08}),
    "inception-v3": _model("cnn", (2.9, 310, 91, 8.0, 1.6), _INCEPTION),
    "vgg-19": _model("cnn", (4.9, 55, 548, 14.0, 1.2), _VGG),
    "fast-rcnn": _model(
        "detection", (13.0, 380, 160, 38.0, 3.5), {CONV_LARGE: 0.52, CONV: 0.16, DENSE: 0.16, RELU: 0.1, BIAS: 0.06}
    ),
    "bert-base": _model("nlp", (2.1, 290, 418, 4.0, 0.4), _BERT),
    "ncf": _model(
        "recommendation", (0.012, 18, 120, 0.02, 0.03), {DENSE_SMALL: 0.52, RELU_SMALL: 0.2, MULTIPLY_SMALL: 0.28}
    ),
    "dcn": _model(
        "recommendation",
        (0.03, 40, 160, 0.05, 0.06),
        {DENSE: 0.42, MULTIPLY_SMALL: 0.28, ADD_SMALL: 0.18, BIAS_SMALL: 0.12},
    ),
    "drn": _model(
        "recommendation", (0.05, 60, 140, 0.08, 0.08), {DENSE: 0.62, RELU_SMALL: 0.14, ADD_SMALL: 0.14, SUBTRACT: 0.1}
    ),
    "nasnet-large": _model(
        "cnn", (13.5, 1300, 340, 24.0, 1.8), {CONV: 0.34, CONV_SMALL: 0.26, RELU: 0.2, ADD: 0.14, MULTIPLY: 0.06}
    ),
    "lstm": _model("rnn", (0.9, 420, 60, 0.6, 0.15), _LSTM),
    "efficientnet-widese-b4": _model(
        "cnn", (3.6, 560, 74, 17.0, 1.5), {**_MOBILE, SIGMOID_SMALL: 0.02, SIGMOID: 0.14, CONV_SMALL: 0.39}
    ),
    "yolo-v5": _model(
        "detection", (4.2, 260, 81, 16.0, 2.6), {CONV_LARGE: 0.42, CONV: 0.3, SIGMOID: 0.13, MULTIPLY: 0.11, ADD: 0.04}
    ),
}
"""The 18 models that are fully known in advance."""

TARGETS: Mapping[str, PaperModel] = {
    "mobilenet-v2": _model("cnn", (0.5, 155, 14, 3.5, 1.1), {**_MOBILE, SIGMOID_SMALL: 0.01, RELU: 0.16}),
    "vgg-16": _model("cnn", (4.1, 46, 528, 13.0, 1.2), {**_VGG, CONV_LARGE: 0.66, DENSE: 0.08}),
    "resnet-101": _model("cnn", (3.8, 350, 170, 10.0, 1.2), _RESNET),
    "resnet-152-v2": _model("cnn", (5.7, 560, 230, 11.5, 1.2), {**_RESNET, CONV_LARGE: 0.31, RELU: 0.13}),
    "inception-v2": _model("cnn", (1.6, 230, 43, 6.0, 1.3), {**_INCEPTION, CONV: 0.5, CONV_SMALL: 0.26}),
    "inception-v4": _model("cnn", (5.8, 480, 163, 10.5, 1.6), {**_INCEPTION, CONV: 0.48, CONV_SMALL: 0.28}),
    "densenet-201": _model("cnn", (3.7, 710, 77, 12.0, 1.2), {**_DENSENET, CONV: 0.37, RELU: 0.22}),
    "bert-large": _model("nlp", (7.0, 560, 1280, 7.5, 0.4), {**_BERT, DENSE: 0.66, DENSE_SMALL: 0.02}),
    "gru": _model("rnn", (0.7, 330, 45, 0.5, 0.15), {**_LSTM, SIGMOID_SMALL: 0.14, SUBTRACT: 0.04}),
    "roberta": _model("nlp", (2.2, 295, 476, 4.2, 0.5), {**_BERT, DENSE: 0.58, ADD: 0.11}),
    "transformer": _model("nlp", (1.3, 240, 250, 3.0, 0.3), {**_BERT, DENSE: 0.54, RELU: 0.12, TANH: 0.0}),
    "tacotron2": _model(
        "speech", (6.5, 1900, 107, 5.0, 0.3), {**_LSTM, DENSE_SMALL: 0.3, CONV_SMALL: 0.15, TANH_SMALL: 0.1, RELU: 0.02}
    ),
}
"""The 12 models to serve that are not known in advance."""

PAPER_MODELS: Mapping[str, PaperModel] = {**SOURCES, **TARGETS}
