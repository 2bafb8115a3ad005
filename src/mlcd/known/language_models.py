"""Language models as their `config.json` describes them: sizes, never measurements."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlcd.untrusted import Fields, Malformed, read_json

CONFIG = "config.json"
MOST_CONFIG_BYTES = 1024 * 1024
"""Published ones have under 10 kB; quantisation tables make some larger."""
MOST_LAYERS, MOST_WIDTH, MOST_EXPERTS, MOST_PARAMETERS = 10_000, 10_000_000, 4096, 1e20
BYTES_OF_DTYPE = {"float64": 8.0, "float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "float8": 1.0, "int8": 1.0}
SERVED_BYTES = 2.0
"""Servers load weights in half precision unless told otherwise; float32 in a config says how they were saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModel:
    """What a user knows of a model before serving it.

    parameters      of the whole model
    layers          that each new token passes through: decoder layers
    encoder_layers  0 for a decoder-only model
    hidden          width of a token's vector
    kv_heads, head_dim  keys and values of one layer that are kept for each token
    bytes_per_weight  as it is served
    """

    parameters: float
    layers: int
    hidden: int
    kv_heads: int
    head_dim: int
    encoder_layers: int = 0
    bytes_per_weight: float = SERVED_BYTES

    def __post_init__(self) -> None:
        counts = (self.layers, self.hidden, self.kv_heads, self.head_dim)
        if not 0 < self.parameters <= MOST_PARAMETERS or not 0 < self.bytes_per_weight <= 8:
            raise ValueError("a model's parameters and their size must be more than 0")
        if min(counts) < 1 or self.encoder_layers < 0 or max(counts) > MOST_WIDTH:
            raise ValueError("a model's layers, width and heads must be at least 1")

    @property
    def has_encoder(self) -> bool:
        """Whether the prompt passes through layers of its own."""
        return self.encoder_layers > 0

    @property
    def token_parameters(self) -> float:
        """Parameters that each new token passes through. A decoder layer beside an encoder has a third block."""
        if not self.has_encoder:
            return self.parameters
        decoder = self.layers * 4 / 3
        return self.parameters * decoder / (decoder + self.encoder_layers)

    @property
    def prompt_parameters(self) -> float:
        """Parameters that each token of the prompt passes through."""
        return self.parameters - self.token_parameters if self.has_encoder else self.parameters

    @property
    def weight_bytes(self) -> float:
        """Of the whole model, as it is served."""
        return self.parameters * self.bytes_per_weight

    @property
    def kv_bytes(self) -> float:
        """Kept for each token of a sequence: keys and values of every layer in half precision.

        With an encoder, each layer keeps the prompt's a second time, for cross attention.
        """
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim * (2 if self.has_encoder else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLengths:
    """Means of a request's prompt and answer, in tokens."""

    input_tokens: float
    output_tokens: float

    def __post_init__(self) -> None:
        if not (self.input_tokens > 0 and self.output_tokens > 0):
            raise ValueError("a request needs tokens")


def read_config(folder: Path) -> LanguageModel | None:
    """The model in `folder` by its config.json; None if there is no such file. Raises Malformed naming what is wrong.

    Reads the names that Llama, GPT, GPT-BigCode, Falcon and T5 use. Weights are not opened.
    """
    path = folder / CONFIG
    try:
        data = read_json(path, most_bytes=MOST_CONFIG_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Malformed(str(path), f"cannot be read: {error.strerror}") from error
    return described(data, str(path))


def described(data: object, source: str = CONFIG) -> LanguageModel:
    """The model that the content of a config.json describes. Raises Malformed."""
    fields = Fields(data, source)
    if "text_config" in fields and not _named(fields, _LAYERS):  # models that also see pictures
        fields = fields.fields("text_config")
    layers, hidden, heads = (_whole(fields, names) for names in (_LAYERS, _HIDDEN, _HEADS))
    encoder = _encoder_layers(fields)
    kv_heads = 1 if fields.data.get("multi_query") is True else _whole(fields, _KV_HEADS, default=heads)
    head_dim = _whole(fields, _HEAD_DIM, default=max(hidden // heads, 1))
    parameters = _parameters(fields, layers=layers, encoder=encoder, hidden=hidden, head_dim=head_dim, kv=kv_heads)
    if parameters > MOST_PARAMETERS:
        raise Malformed(source, f"describes {parameters:.1e} parameters, more than {MOST_PARAMETERS:.0e}")
    return LanguageModel(
        parameters=parameters,
        layers=layers,
        hidden=hidden,
        kv_heads=kv_heads,
        head_dim=head_dim,
        encoder_layers=encoder,
        bytes_per_weight=min(_bytes_per_weight(fields.data), SERVED_BYTES),
    )


_LAYERS = ("num_decoder_layers", "num_hidden_layers", "num_layers", "n_layer", "n_layers")
_HIDDEN = ("hidden_size", "d_model", "n_embd")
_HEADS = ("num_attention_heads", "num_heads", "n_head", "n_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
_HEAD_DIM = ("head_dim", "d_kv")
_INNER = ("intermediate_size", "d_ff", "n_inner", "ffn_dim")
_GATED_KINDS = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3")
"""Values of `model_type` whose feed-forward blocks have three matrices; T5 says it in `feed_forward_proj`."""


def _named(fields: Fields, names: tuple[str, ...]) -> str:
    """The first of these names that is given and not null; empty if none is."""
    return next((name for name in names if name in fields), "")


def _whole(fields: Fields, names: tuple[str, ...], default: int | None = None) -> int:
    name = _named(fields, names)
    if not name and default is not None:
        return default
    return fields.whole(name or names[0], least=1, most=MOST_LAYERS if names is _LAYERS else MOST_WIDTH)


def _encoder_layers(fields: Fields) -> int:
    """T5 and BART have an encoder; its layers are `num_layers` or `encoder_layers`."""
    name = _named(fields, ("encoder_layers", "num_layers"))
    if fields.data.get("is_encoder_decoder") is not True or not name:
        return 0
    return fields.whole(name, least=1, most=MOST_LAYERS)


def _bytes_per_weight(given: Mapping[str, object]) -> float:
    quantised = given.get("quantization_config")
    if isinstance(quantised, Mapping):
        bits = 4 if quantised.get("load_in_4bit") is True else quantised.get("bits")
        return bits / 8 if isinstance(bits, int) and bits in (2, 3, 4, 8) else 1.0  # fp8 and int8 name no bits
    dtype = given.get("torch_dtype", given.get("dtype"))
    return BYTES_OF_DTYPE.get(dtype, SERVED_BYTES) if isinstance(dtype, str) else SERVED_BYTES


def _parameters(fields: Fields, *, layers: int, encoder: int, hidden: int, head_dim: int, kv: int) -> float:
    """Weights of attention and feed-forward blocks and of the embeddings; biases and norms are under 1%."""
    heads = _whole(fields, _HEADS)
    inner = _whole(fields, _INNER, default=4 * hidden)
    vocabulary = fields.whole("vocab_size", least=1, most=MOST_WIDTH)
    gated = fields.data.get("model_type") in _GATED_KINDS or str(fields.data.get("feed_forward_proj")).startswith(
        "gated"
    )
    attention = hidden * head_dim * 2 * (heads + kv)
    forward = hidden * inner * (3 if gated else 2)
    name = _named(fields, ("num_local_experts", "num_experts"))
    if name:
        forward *= fields.whole(name, least=1, most=MOST_EXPERTS)
    embeddings = vocabulary * hidden * (2 if fields.data.get("tie_word_embeddings") is False else 1)
    decoder = layers * (attention * (2 if encoder else 1) + forward)
    return float(decoder + encoder * (attention + forward) + embeddings)
