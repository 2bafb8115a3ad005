"""The measured models: name, family, how to build each, and the shape of one input item."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torchvision import models as vision

from serve_device import networks


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One model. `shape` is of one item; `ids` is the upper bound of an input of ids, and 0 for an input of numbers."""

    name: str
    family: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    ids: int = 0

    def module(self) -> nn.Module:
        """Its structure without weights; `fill` allocates random ones."""
        with torch.device("meta"):
            return self.build().eval()

    def sample(self, batch: int, dtype: torch.dtype) -> Tensor:
        """Random input on the host."""
        if self.ids:
            return torch.randint(0, self.ids, (batch, *self.shape))
        return torch.randn(batch, *self.shape).to(dtype)


def fill(module: nn.Module, device: torch.device) -> nn.Module:
    """Allocate random weights on the device, scaled so that activations neither vanish nor explode."""
    module = module.to_empty(device=device)
    with torch.no_grad():
        for parameter in module.parameters():
            fan = parameter[0].numel() if parameter.dim() > 1 else 1
            parameter.normal_(0.0, fan**-0.5) if fan > 1 else parameter.fill_(1.0)
        for name, buffer in module.named_buffers():
            buffer.fill_(1 if name.endswith("running_var") else 0)
    for part in module.modules():
        if isinstance(part, nn.RNNBase):
            part.flatten_parameters()
    return module


def picture(name: str, family: str, side: int = 224, **options: object) -> Entry:
    """An image classifier of torchvision."""
    builder = getattr(vision, name)
    return Entry(name=name, family=family, build=lambda: builder(**options), shape=(3, side, side))


ZOO: tuple[Entry, ...] = (
    picture("vgg11", "vgg"),
    picture("vgg16", "vgg"),
    picture("resnet18", "resnet"),
    picture("resnet50", "resnet"),
    picture("resnet101", "resnet"),
    picture("densenet121", "densenet"),
    picture("densenet201", "densenet"),
    picture("inception_v3", "inception", 299, init_weights=False, aux_logits=False),
    picture("googlenet", "inception", init_weights=False, aux_logits=False),
    picture("squeezenet1_1", "squeezenet"),
    picture("mobilenet_v2", "mobilenet"),
    picture("mobilenet_v3_large", "mobilenet"),
    picture("efficientnet_b0", "efficientnet"),
    picture("efficientnet_b4", "efficientnet", 380),
    Entry(name="nasnet_like", family="nasnet", build=networks.Nasnet, shape=(3, 224, 224)),
    Entry(name="yolo_like", family="detector", build=networks.Yolo, shape=(3, 416, 416)),
    Entry(name="faster_rcnn_like", family="detector", build=networks.Rpn, shape=(3, 320, 320)),
    Entry(
        name="lstm",
        family="recurrent",
        build=lambda: networks.Recurrent(nn.LSTM, 1024, 2),
        shape=(64,),
        ids=10000,
    ),
    Entry(name="gru", family="recurrent", build=lambda: networks.Recurrent(nn.GRU, 512, 3), shape=(96,), ids=10000),
    Entry(
        name="bert_base", family="bert", build=lambda: networks.Bert(12, 768, 12, 30522, 128), shape=(128,), ids=30522
    ),
    Entry(
        name="bert_large",
        family="bert",
        build=lambda: networks.Bert(24, 1024, 16, 30522, 128),
        shape=(128,),
        ids=30522,
    ),
    Entry(
        name="roberta_base",
        family="bert",
        build=lambda: networks.Bert(12, 768, 12, 50265, 256),
        shape=(256,),
        ids=50265,
    ),
    Entry(name="transformer", family="transformer", build=networks.Transformer, shape=(64,), ids=32000),
    Entry(name="tacotron_like", family="speech", build=networks.Tacotron, shape=(80,), ids=148),
    Entry(name="dcgan", family="generator", build=networks.Dcgan, shape=(100,)),
    Entry(name="wgan", family="generator", build=networks.Wgan, shape=(128,)),
    Entry(name="sgan", family="generator", build=networks.Sgan, shape=(100,)),
    Entry(name="ncf", family="recommender", build=networks.Ncf, shape=(1000, 2), ids=27000),
    Entry(name="dcn", family="recommender", build=networks.Dcn, shape=(256, 26), ids=200000),
    Entry(name="drn", family="recommender", build=networks.Drn, shape=(250,), ids=100000),
)
