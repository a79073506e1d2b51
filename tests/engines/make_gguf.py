#!/usr/bin/env python3
"""Turn the model that make_model.py writes into a file that llama.cpp loads.

    make_gguf.py MODEL_DIR OUT.gguf

The same weights and tokenizer, so that both engines see the same tokens.
"""
import json
import os
import sys

import gguf
from safetensors.torch import load_file

ATTENTION = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
FEED_FORWARD = {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def name(theirs):
    """A tensor's name in llama.cpp."""
    stem = theirs.removesuffix(".weight")
    if stem in OUTER:
        return f"{OUTER[stem]}.weight"
    layer, part = stem.removeprefix("model.layers.").split(".", 1)
    ours = {**ATTENTION, **FEED_FORWARD, **NORMS}[part.rsplit(".", 1)[-1]]
    return f"blk.{layer}.{ours}.weight"


def rotated(tensor, heads):
    """Rows of queries and keys in llama.cpp's order: pairs that rotate together stand together."""
    rows, columns = tensor.shape
    return tensor.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def tokenizer(writer, folder, vocabulary):
    read = json.load(open(os.path.join(folder, "tokenizer.json")))
    tokens = [""] * vocabulary
    special = {token["content"]: token["id"] for token in read["added_tokens"]}
    for text, number in {**read["model"]["vocab"], **special}.items():
        tokens[number] = text
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in read["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([control if text in special else normal for text in tokens])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(special["<|stop|>"])
    writer.add_pad_token_id(special["<|end|>"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(open(os.path.join(folder, "chat_template.jinja")).read())


def main(folder, out):
    config = json.load(open(os.path.join(folder, "config.json")))
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_name("tiny")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    tokenizer(writer, folder, config["vocab_size"])
    for theirs, tensor in load_file(os.path.join(folder, "model.safetensors")).items():
        data = tensor.float().numpy()
        if "q_proj" in theirs or "k_proj" in theirs:
            data = rotated(data, heads if "q_proj" in theirs else kv_heads)
        writer.add_tensor(name(theirs), data.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
