"""Number types of Baton's engine, simulated in transformers: what they round, not how they compute."""

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

INT4_GROUP = 128


def rounded(x, largest):
    """Integers of up to `largest` times a scale for each row of the last dimension."""
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / largest
    return (x / scale).round().clamp(-largest, largest) * scale


def int4_linear(weight):
    """4 bits with a scale for each output and each 128 inputs; the last group may be shorter."""
    return torch.cat([rounded(part, 7) for part in weight.split(INT4_GROUP, -1)], -1)


def attention_kv8(module, q, k, v, mask, **options):
    return sdpa_attention_forward(module, q, rounded(k, 127), rounded(v, 127), mask, **options)


def simulate(model, kind):
    """Rounds what a kind rounds.

    int8_weights: a scale for each output, embeddings too; int4_weights: embeddings, which are the LM head too, in int8;
    int8_kv: a scale for each token and head, K after rope; prefill reads the rounded values too.
    """
    for name, parameter in model.named_parameters():
        if parameter.ndim != 2:
            continue
        if kind == "int4_weights" and "embed" not in name:
            parameter.data = int4_linear(parameter.data)
        elif kind in ("int8_weights", "int4_weights"):
            parameter.data = rounded(parameter.data, 127)
    if kind == "int8_kv":
        AttentionInterface.register("kv8", attention_kv8)
        model.set_attn_implementation("kv8")
