#!/usr/bin/env python3
"""Writes a checkpoint as a GGUF file (version 3, qwen3moe, f16): export.py [CKPT [OUT]], with tok.json in the current folder.

Also writes card.json: steps, tokens seen, validation loss.
"""
import json
import struct
import sys

import numpy as np
import torch

ARCHITECTURE = "qwen3moe"
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
PACK = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}
BATCH_TOKENS = 16 * 256  # what one training step sees


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, v):
    return string(v) if kind == STRING else struct.pack(PACK[kind], v)


def scalar(key, kind, v):
    return string(key) + struct.pack("<I", kind) + value(kind, v)


def array(key, kind, values):
    return string(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + b"".join(value(kind, v) for v in values)


def metadata(config, tokens):
    vocab = tokens["vocab"]
    numbers = {
        "context_length": 1024,
        "embedding_length": config["d"],
        "block_count": config["layers"],
        "feed_forward_length": config["ff"],
        "attention.head_count": config["heads"],
        "attention.head_count_kv": config["kv"],
        "attention.key_length": config["hd"],
        "attention.value_length": config["hd"],
        "expert_count": config["experts"],
        "expert_used_count": config["topk"],
        "expert_feed_forward_length": config["ff"],
        "vocab_size": config["vocab"],
    }
    end = vocab.index("<|endoftext|>")
    records = [
        scalar("general.architecture", STRING, ARCHITECTURE),
        scalar("general.name", STRING, "Fairytale MoE 14M"),
        scalar("general.license", STRING, "MIT"),
        scalar("general.file_type", U32, 1),
        scalar("general.quantization_version", U32, 2),
    ]
    records += [scalar(f"{ARCHITECTURE}.{key}", U32, v) for key, v in numbers.items()]
    records += [
        scalar(f"{ARCHITECTURE}.attention.layer_norm_rms_epsilon", F32, config["eps"]),
        scalar(f"{ARCHITECTURE}.rope.freq_base", F32, config["theta"]),
        scalar("tokenizer.ggml.model", STRING, "gpt2"),
        scalar("tokenizer.ggml.pre", STRING, "qwen2"),
        array("tokenizer.ggml.tokens", STRING, vocab),
        array("tokenizer.ggml.token_type", I32, [3 if t.startswith("<|") else 1 for t in vocab]),
        array("tokenizer.ggml.merges", STRING, tokens["merges"]),
        scalar("tokenizer.ggml.bos_token_id", U32, end),
        scalar("tokenizer.ggml.eos_token_id", U32, end),
        scalar("tokenizer.ggml.padding_token_id", U32, vocab.index("<|pad|>")),
        scalar("tokenizer.ggml.add_bos_token", BOOL, True),
    ]
    return records


def tensors(config, weights):
    """(name, weight, as f16) in file order; norms and routers stay f32."""
    yield "token_embd.weight", weights["e.weight"], True
    yield "output_norm.weight", weights["n.w"], False
    for i in range(config["layers"]):
        own, theirs = f"blk.{i}.", f"b.{i}."
        yield own + "attn_norm.weight", weights[theirs + "n1.w"], False
        yield own + "ffn_norm.weight", weights[theirs + "n2.w"], False
        for name, key in (("attn_q", "a.q"), ("attn_k", "a.k"), ("attn_v", "a.v"), ("attn_output", "a.o")):
            yield f"{own}{name}.weight", weights[f"{theirs}{key}.weight"], True
        yield own + "attn_q_norm.weight", weights[theirs + "a.qn.w"], False
        yield own + "attn_k_norm.weight", weights[theirs + "a.kn.w"], False
        yield own + "ffn_gate_inp.weight", weights[theirs + "m.r.weight"], False
        for name, key in (("gate", "g"), ("up", "u"), ("down", "dn")):
            yield f"{own}ffn_{name}_exps.weight", weights[f"{theirs}m.{key}"], True


def padding(size):
    return b"\0" * (-size % 32)


def main():
    checkpoint = torch.load(sys.argv[1] if len(sys.argv) > 1 else "ckpt.pt", map_location="cpu")
    out = sys.argv[2] if len(sys.argv) > 2 else "fairytale-moe-f16.gguf"
    with open("tok.json", encoding="utf-8") as file:
        tokens = json.load(file)
    config, records = checkpoint["c"], metadata(checkpoint["c"], tokens)
    blobs, info, offset = [], b"", 0
    for name, weight, half in tensors(config, checkpoint["sd"]):
        data = weight.detach().numpy().astype(np.float16 if half else np.float32)
        shape = data.shape[::-1]
        info += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 1 if half else 0, offset)
        blobs.append(data.tobytes())
        offset += len(blobs[-1]) + len(padding(len(blobs[-1])))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(blobs), len(records)) + b"".join(records) + info
    with open(out, "wb") as file:
        file.write(head + padding(len(head)))
        for blob in blobs:
            file.write(blob + padding(len(blob)))
    card = {
        "steps": checkpoint["step"],
        "tokens_seen": checkpoint["step"] * BATCH_TOKENS,
        "val_loss": checkpoint["val"],
        "config": config,
    }
    with open("card.json", "w", encoding="utf-8") as file:
        json.dump(card, file)
    print(out, card)


if __name__ == "__main__":
    main()
