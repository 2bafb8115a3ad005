"""Makes a small Llama of random weights with its tokenizer: a language model to try servers with, without a download.

    python make_llama.py FOLDER [--layers 2] [--hidden 64] [--heads 4] [--vocabulary 512] [--dtype float32]

Its speed is that of a trained model of its size; what it writes makes no sense. Needs transformers and PyTorch.
"""

import argparse

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
WORDS = "time year people way day man thing life child world school state family group"


def main() -> None:
    """Write the model's folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=512)
    parser.add_argument("--dtype", default="float32", help="of the weights, such as bfloat16")
    given = parser.parse_args()

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(prefix="")
    letters = [chr(letter) for letter in range(33, 127)]
    trainer = trainers.BpeTrainer(
        vocab_size=given.vocabulary, special_tokens=["<unk>", "<s>", "</s>"], initial_alphabet=letters
    )
    tokenizer.train_from_iterator([WORDS] * 50, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE
    )
    fast.save_pretrained(given.folder)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=given.hidden,
        intermediate_size=4 * given.hidden,
        num_hidden_layers=given.layers,
        num_attention_heads=given.heads,
        num_key_value_heads=given.heads,
        max_position_embeddings=4096,
    )
    model = LlamaForCausalLM(config).to(getattr(torch, given.dtype))
    # No end of the text: every answer has as many tokens as were asked for.
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=None, pad_token_id=0)
    model.save_pretrained(given.folder)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters in {given.folder}")  # noqa: T201


if __name__ == "__main__":
    main()
