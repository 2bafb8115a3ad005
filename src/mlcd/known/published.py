"""The number of parameters of models, as their authors published it: what a job's `model` says about its memory."""

import re
from collections.abc import Mapping

PARAMETERS: Mapping[str, float] = {
    # Torchvision's table of weights (2024); AlexNet to Inception-v3 as in their papers.
    "alexnet": 61.1e6,
    "vgg16": 138.4e6,
    "resnet18": 11.7e6,
    "resnet34": 21.8e6,
    "resnet50": 25.6e6,
    "resnet101": 44.5e6,
    "resnet152": 60.2e6,
    "inceptionv3": 27.2e6,
    "densenet121": 8.0e6,
    "mobilenetv2": 3.5e6,
    "efficientnetb0": 5.3e6,
    "vitbase": 86.6e6,
    "vitlarge": 304.3e6,
    # Devlin et al. 2019; Liu et al. 2019; Radford et al. 2019; Raffel et al. 2020.
    "bertbase": 110e6,
    "bertlarge": 340e6,
    "robertabase": 125e6,
    "robertalarge": 355e6,
    "gpt2": 124e6,
    "gpt2medium": 355e6,
    "gpt2large": 774e6,
    "gpt2xl": 1.5e9,
    "t5small": 60e6,
    "t5base": 220e6,
    "t5large": 770e6,
}
"""By name, without separators and in lower case."""
SHORT = {"resnet": "resnet152", "inception": "inceptionv3", "bert": "bertlarge"}
"""The same short names that simulated jobs may use."""

_SIZE = re.compile(r"(?<![A-Za-z0-9.])(\d{1,4}(?:\.\d{1,3})?)([mMbB])(?![A-Za-z0-9])")
_UNIT = {"m": 1e6, "b": 1e9}


def published_parameters(name: str) -> float | None:
    """The parameters of the model called `name`, or that the name states (`llama-3-8b`); None if neither is known."""
    stated = _SIZE.search(name.replace("_", "-"))
    if stated and float(stated[1]) > 0:
        return float(stated[1]) * _UNIT[stated[2].lower()]
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return PARAMETERS.get(SHORT.get(plain, plain))
