"""Models that torchvision does not have, in their usual sizes, with static shapes and random weights."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torchvision.models import resnet50


class Encoder(nn.Module):
    """One layer of BERT: attention and two dense layers, each followed by a residual and a norm."""

    def __init__(self, width: int, heads: int, hidden: int, cross: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.own = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.other = nn.ModuleList(nn.Linear(width, width) for _ in range(4 if cross else 0))
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if cross else 2))

    def attend(self, parts: nn.ModuleList, x: Tensor, memory: Tensor, causal: bool) -> Tensor:
        def split(y: Tensor) -> Tensor:
            return y.view(y.shape[0], y.shape[1], self.heads, -1).transpose(1, 2)

        query, key, value = split(parts[0](x)), split(parts[1](memory)), split(parts[2](memory))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
        out: Tensor = parts[3](mixed.transpose(1, 2).reshape(x.shape))
        return out

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        x = self.norms[0](x + self.attend(self.own, x, x, causal=memory is not None))
        if memory is not None:
            x = self.norms[2](x + self.attend(self.other, x, memory, causal=False))
        out: Tensor = self.norms[1](x + self.down(F.gelu(self.up(x))))
        return out


class Bert(nn.Module):
    """Embeddings, encoder layers, and the pooled first token."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Parameter(torch.empty(1, length, width))
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Encoder(width, heads, 4 * width) for _ in range(layers))
        self.pool = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.words(tokens) + self.places)
        for layer in self.layers:
            x = layer(x)
        return torch.tanh(self.pool(x[:, 0]))


class Transformer(nn.Module):
    """The encoder-decoder of translation, base size, one pass over a whole target sentence."""

    def __init__(self, width: int = 512, layers: int = 6, vocabulary: int = 32000, length: int = 64) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Parameter(torch.empty(1, length, width))
        self.encoder = nn.ModuleList(Encoder(width, 8, 4 * width) for _ in range(layers))
        self.decoder = nn.ModuleList(Encoder(width, 8, 4 * width, cross=True) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = y = self.words(tokens) + self.places
        for layer in self.encoder:
            x = layer(x)
        for layer in self.decoder:
            y = layer(y, x)
        out: Tensor = self.head(y)
        return out


class Recurrent(nn.Module):
    """A language model's recurrent layers over a sequence of tokens."""

    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU], width: int, layers: int, vocabulary: int = 10000) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.cells = cell(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.cells(self.words(tokens))[0])
        return out


class Tacotron(nn.Module):
    """Text to spectrogram: convolutions and a bidirectional LSTM, then the decoder's LSTM and the post-net.

    The decoder runs over given frames in one call, because a loop with a stop token has no static shape.
    """

    def __init__(self, width: int = 512, frames: int = 200, mels: int = 80) -> None:
        super().__init__()
        self.frames = frames
        self.words = nn.Embedding(148, width)
        self.convs = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU()) for _ in range(3)
        )
        self.encoder = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)
        self.query = nn.Parameter(torch.empty(1, 4, frames, width // 4))
        self.decoder = nn.LSTM(width, 1024, 2, batch_first=True)
        self.mel = nn.Linear(1024, mels)
        sizes = [mels, width, width, width, width, mels]
        self.post = nn.ModuleList(
            nn.Sequential(nn.Conv1d(a, b, 5, padding=2), nn.BatchNorm1d(b), nn.Tanh()) for a, b in pairwise(sizes)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens).transpose(1, 2).contiguous()
        for conv in self.convs:
            x = conv(x)
        memory = self.encoder(x.transpose(1, 2).contiguous())[0]
        memory = memory.view(len(tokens), -1, 4, memory.shape[-1] // 4).transpose(1, 2).contiguous()
        query = self.query.expand(len(tokens), -1, -1, -1).contiguous()
        context = F.scaled_dot_product_attention(query, memory, memory).transpose(1, 2).flatten(2)
        mel = self.mel(self.decoder(context)[0]).transpose(1, 2).contiguous()
        y = mel
        for conv in self.post:
            y = conv(y)
        out: Tensor = mel + y
        return out


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, group: int = 1) -> nn.Sequential:
    """Convolution, norm, SiLU: YOLO's block."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=group, bias=False),
        nn.BatchNorm2d(outputs),
        nn.SiLU(),
    )


class Split(nn.Module):
    """YOLO's stage: half of the channels pass through residual blocks, then both halves are concatenated."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        half = width // 2
        self.left, self.right, self.join = conv(width, half, 1), conv(width, half, 1), conv(width, width, 1)
        self.bricks = nn.ModuleList(nn.Sequential(conv(half, half, 1), conv(half, half)) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        y = self.left(x)
        for brick in self.bricks:
            y = y + brick(y)
        out: Tensor = self.join(torch.cat([y, self.right(x)], 1))
        return out


class Yolo(nn.Module):
    """One-stage detector: split stages, a pyramid with a top-down and a bottom-up path, three heads."""

    def __init__(self, width: int = 32, classes: int = 80) -> None:
        super().__init__()
        w = width
        self.stem = nn.Sequential(conv(3, w, 3, 2), conv(w, 2 * w, 3, 2), Split(2 * w, 1))
        self.down = nn.ModuleList(
            nn.Sequential(conv(k * w, 2 * k * w, 3, 2), Split(2 * k * w, d)) for k, d in ((2, 2), (4, 3), (8, 1))
        )
        self.lateral = nn.ModuleList([conv(16 * w, 8 * w, 1), conv(8 * w, 4 * w, 1)])
        self.up = nn.ModuleList([nn.Sequential(conv(16 * w, 8 * w, 1), Split(8 * w, 1)), conv(8 * w, 4 * w, 1)])
        self.heads = nn.ModuleList(nn.Conv2d(k * w, 3 * (classes + 5), 1) for k in (4, 8, 16))

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)
        third = self.down[0](x)
        fourth = self.down[1](third)
        fifth = self.down[2](fourth)
        side = F.interpolate(self.lateral[0](fifth), scale_factor=2.0)
        middle = self.up[0](torch.cat([side, fourth], 1))
        side = F.interpolate(self.lateral[1](middle), scale_factor=2.0)
        low = self.up[1](torch.cat([side, third], 1))
        return [head(y) for head, y in zip(self.heads, (low, middle, fifth), strict=True)]


class Rpn(nn.Module):
    """Faster-RCNN up to its proposals: ResNet-50, a feature pyramid, and the proposal head on every level."""

    def __init__(self, width: int = 256, anchors: int = 3) -> None:
        super().__init__()
        trunk = resnet50()
        self.stem = nn.Sequential(trunk.conv1, trunk.bn1, trunk.relu, trunk.maxpool)
        self.stages = nn.ModuleList([trunk.layer1, trunk.layer2, trunk.layer3, trunk.layer4])
        self.side = nn.ModuleList(nn.Conv2d(c, width, 1) for c in (256, 512, 1024, 2048))
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.head = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.score, self.box = nn.Conv2d(width, anchors, 1), nn.Conv2d(width, 4 * anchors, 1)

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)
        levels: list[Tensor] = []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        above: Tensor | None = None
        out = []
        for level, side, smooth in zip(levels[::-1], list(self.side)[::-1], list(self.smooth)[::-1], strict=True):
            above = side(level) if above is None else side(level) + F.interpolate(above, scale_factor=2.0)
            head = self.head(smooth(above))
            out += [self.score(head), self.box(head)]
        return out


class Separable(nn.Module):
    """NASNet's block: ReLU, depthwise and pointwise convolution and norm, twice."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.parts = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(inputs, inputs, kernel, stride, kernel // 2, groups=inputs, bias=False),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, kernel, 1, kernel // 2, groups=outputs, bias=False),
            nn.Conv2d(outputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.parts(x)
        return out


class Cell(nn.Module):
    """NASNet's cell, simplified: five parallel sums of separable convolutions and pools, concatenated."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.narrow = nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width))
        self.five = nn.ModuleList(Separable(width, width, 5, stride) for _ in range(2))
        self.three = nn.ModuleList(Separable(width, width, 3, stride) for _ in range(3))
        self.mean, self.most = nn.AvgPool2d(3, stride, 1), nn.MaxPool2d(3, stride, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.narrow(x)
        mean = self.mean(x)
        one = self.five[0](x) + self.three[0](x)
        two = self.five[1](x) + self.three[1](x)
        three, four, five = mean + self.most(x), mean + one, self.three[2](x) + two
        return torch.cat([one, two, three, four, five], 1)


class Nasnet(nn.Module):
    """Stages of such cells, in NASNet-A (mobile)'s size."""

    def __init__(self, width: int = 44, repeats: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32))
        cells, inputs = [], 32
        for stage in range(3):
            for place in range(repeats):
                cells.append(Cell(inputs, width << stage, 2 if place == 0 else 1))
                inputs = 5 * (width << stage)
        self.cells = nn.Sequential(*cells)
        self.head = nn.Linear(inputs, 1000)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(F.relu(self.cells(self.stem(x))).mean((2, 3)))
        return out


class Dcgan(nn.Module):
    """A generator of transposed convolutions, 100 numbers to an image of 64 x 64."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        sizes = [100, 8 * width, 4 * width, 2 * width, width]
        layers: list[nn.Module] = []
        for place, (a, b) in enumerate(pairwise(sizes)):
            stride, pad = (1, 0) if place == 0 else (2, 1)
            layers += [nn.ConvTranspose2d(a, b, 4, stride, pad, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())

    def forward(self, noise: Tensor) -> Tensor:
        out: Tensor = self.layers(noise.view(len(noise), 100, 1, 1))
        return out


class Grow(nn.Module):
    """A residual block that doubles the image's size."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)])
        self.convs = nn.ModuleList([nn.Conv2d(inputs, outputs, 3, 1, 1), nn.Conv2d(outputs, outputs, 3, 1, 1)])
        self.side = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.interpolate(F.relu(self.norms[0](x)), scale_factor=2.0)
        y = self.convs[1](F.relu(self.norms[1](self.convs[0](y))))
        out: Tensor = y + self.side(F.interpolate(x, scale_factor=2.0))
        return out


class Wgan(nn.Module):
    """The residual generator of Wasserstein GANs, 128 numbers to an image of 128 x 128."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.dense = nn.Linear(128, 8 * width * 16)
        self.bricks = nn.Sequential(*(Grow(a * width, b * width) for a, b in ((8, 8), (8, 4), (4, 4), (4, 2), (2, 1))))
        self.last = nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 3, 3, 1, 1), nn.Tanh())

    def forward(self, noise: Tensor) -> Tensor:
        out: Tensor = self.last(self.bricks(self.dense(noise).view(len(noise), -1, 4, 4)))
        return out


class Sgan(nn.Module):
    """The semi-supervised GAN's generator: a dense layer, then resize and convolve, to an image of 64 x 64."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(100, 128 * 16 * 16)
        self.layers = nn.Sequential(
            nn.BatchNorm2d(128),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(128, 128, 3, 1, 1),
            nn.BatchNorm2d(128),
            nn.LeakyReLU(0.2),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(128, 64, 3, 1, 1),
            nn.BatchNorm2d(64),
            nn.LeakyReLU(0.2),
            nn.Conv2d(64, 3, 3, 1, 1),
            nn.Tanh(),
        )

    def forward(self, noise: Tensor) -> Tensor:
        out: Tensor = self.layers(self.dense(noise).view(len(noise), 128, 16, 16))
        return out


def dense(sizes: list[int]) -> nn.Sequential:
    """Dense layers with ReLU between them."""
    pairs = pairwise(sizes)
    layers: list[nn.Module] = [part for a, b in pairs for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class Ncf(nn.Module):
    """Neural collaborative filtering: one user's scores for many candidates. Input: pairs of ids, (B, C, 2)."""

    def __init__(self, width: int = 64, users: int = 138000, items: int = 27000) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(users, 3 * width), nn.Embedding(items, 3 * width)
        self.width, self.deep = width, dense([4 * width, 256, 128, 64])
        self.head = nn.Linear(64 + width, 1)

    def forward(self, pairs: Tensor) -> Tensor:
        user, item = self.user(pairs[..., 0]), self.item(pairs[..., 1])
        w = self.width
        product = user[..., :w] * item[..., :w]
        deep = self.deep(torch.cat([user[..., w:], item[..., w:]], -1))
        return torch.sigmoid(self.head(torch.cat([product, deep], -1)))


class Dcn(nn.Module):
    """Deep and cross network: 26 fields per candidate, cross and dense layers in parallel. Input: ids, (B, C, 26)."""

    def __init__(self, fields: int = 26, width: int = 16, crosses: int = 4, table: int = 200000) -> None:
        super().__init__()
        size = fields * width
        self.table = nn.Embedding(table, width)
        self.crosses = nn.ModuleList(nn.Linear(size, size) for _ in range(crosses))
        self.deep, self.head = dense([size, 1024, 1024, 512]), nn.Linear(512 + size, 1)

    def forward(self, ids: Tensor) -> Tensor:
        first = x = self.table(ids).flatten(2)
        for cross in self.crosses:
            x = x + first * cross(x)
        return torch.sigmoid(self.head(torch.cat([x, self.deep(first)], -1)))


class Drn(nn.Module):
    """News recommendation by deep Q-learning: a user's clicks through a GRU, value and advantage of each candidate."""

    def __init__(self, width: int = 128, table: int = 100000, history: int = 50) -> None:
        super().__init__()
        self.history = history
        self.table = nn.Embedding(table, width)
        self.clicks = nn.GRU(width, width, batch_first=True)
        self.value, self.advantage = dense([width, 512, 256, 1]), dense([2 * width, 512, 256, 1])

    def forward(self, ids: Tensor) -> Tensor:
        rows = self.table(ids)
        state = self.clicks(rows[:, : self.history].contiguous())[0][:, -1]
        candidates = rows[:, self.history :]
        both = torch.cat([candidates, state.unsqueeze(1).expand_as(candidates)], -1)
        out: Tensor = self.value(state).unsqueeze(1) + self.advantage(both)
        return out
