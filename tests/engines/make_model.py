#!/usr/bin/env python3
"""Make a tiny random chat model that vLLM can load: no download, the same on every machine.

    make_model.py OUT_DIR

Weights are random, so its answers mean nothing; the tests look at what is cached of their prompts. The
tokenizer is trained on Python's own standard library. Its chat template prints what most templates
print: tools first, then every message with its role, its content and its tool calls.
"""
import glob
import os
import sys
import sysconfig

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCAB, CONTEXT = 2048, 16384
SPECIAL = ["<|end|>", "<|start|>", "<|stop|>"]

TEMPLATE = """\
{%- if tools %}<|start|>tools
{% for tool in tools %}{{ tool['function'] | tojson }}
{% endfor %}<|stop|>
{% endif -%}
{%- for message in messages %}<|start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}
{%- elif message['content'] %}{% for part in message['content'] %}{{ part['text'] }}{% endfor %}{% endif %}
{%- for call in message['tool_calls'] or [] %}<call>{{ call['function']['name'] }} \
{{ call['function']['arguments'] | tojson }}{% endfor %}<|stop|>
{% endfor -%}
{%- if add_generation_prompt %}<|start|>assistant
{% endif %}"""


def tokenizer():
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    bpe.train(sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "*.py")))[:100], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|stop|>", pad_token="<|end|>")
    fast.chat_template = TEMPLATE
    fast.model_max_length = CONTEXT
    return fast


def main(out):
    torch.manual_seed(0)
    # vLLM's attention on CPUs wants heads of 32 or more.
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, max_position_embeddings=CONTEXT, bos_token_id=None, eos_token_id=2,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(out)
    tokenizer().save_pretrained(out)


if __name__ == "__main__":
    main(sys.argv[1])
