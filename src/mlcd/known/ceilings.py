"""What the data sheets of GPUs allow a language model at most: a roofline without any loss."""

from mlcd.known.gpus import Machine
from mlcd.known.language_models import LanguageModel, TokenLengths

BANDWIDTH, FLOPS = "memory bandwidth", "FLOPs"


def most_tokens(model: LanguageModel, machine: Machine, lengths: TokenLengths, users: float) -> tuple[float, str]:
    """(output tokens per second of one node with so many requests in flight, at most; what bounds them).

    A step of all requests reads the weights once and the cache of each:
        users / ((W + users x (n_in + n_out / 2) x KV) / bandwidth).
    Prompts and answers need 2 FLOPs for each parameter that a token passes: F / (2 (P_out + n_in / n_out x P_in)).
    """
    context = lengths.input_tokens + lengths.output_tokens / 2
    step_bytes = model.token_parameters * model.bytes_per_weight + users * context * model.kv_bytes
    by_bandwidth = users * machine.bytes_per_second / step_bytes
    prompt = lengths.input_tokens / lengths.output_tokens * model.prompt_parameters
    by_flops = machine.flops / (2 * (model.token_parameters + prompt))
    return (by_bandwidth, BANDWIDTH) if by_bandwidth < by_flops else (by_flops, FLOPS)
