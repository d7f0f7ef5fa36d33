"""The demo model: a Llama of 4 layers, computed for training.

Weights lie in one flat buffer in the order of `weight_shapes`, whose names are those of Hugging Face. Matrices that
read the same input (q, k, v; gate, up) are neighbours there and are multiplied as one.
"""

import torch
import torch.nn.functional as F

from attention import Attention

VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, WIDTH, MLP = 2048, 256, 4, 4, 2, 64, 704
GROUP = HEADS // KV_HEADS
EPSILON, THETA = 1e-5, 100000.0
CONFIG = dict(
    architectures=["LlamaForCausalLM"],
    model_type="llama",
    vocab_size=VOCAB,
    hidden_size=HIDDEN,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    num_key_value_heads=KV_HEADS,
    head_dim=WIDTH,
    intermediate_size=MLP,
    max_position_embeddings=4096,
    rope_theta=THETA,
    rms_norm_eps=EPSILON,
    hidden_act="silu",
    tie_word_embeddings=True,
    attention_bias=False,
    mlp_bias=False,
    initializer_range=0.02,
    bos_token_id=None,
    eos_token_id=2,
    pad_token_id=0,
    torch_dtype="bfloat16",
)
GENERATION_CONFIG = dict(bos_token_id=None, eos_token_id=[2, 0], pad_token_id=0, max_new_tokens=256)


def weight_shapes():
    """Name and shape of each weight, in the order of the flat buffer."""
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for name, rows, columns in (
            ("self_attn.q_proj", HEADS * WIDTH, HIDDEN),
            ("self_attn.k_proj", KV_HEADS * WIDTH, HIDDEN),
            ("self_attn.v_proj", KV_HEADS * WIDTH, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HEADS * WIDTH),
            ("mlp.gate_proj", MLP, HIDDEN),
            ("mlp.up_proj", MLP, HIDDEN),
            ("mlp.down_proj", HIDDEN, MLP),
        ):
            shapes[f"{layer}{name}.weight"] = (rows, columns)
        shapes[f"{layer}input_layernorm.weight"] = shapes[f"{layer}post_attention_layernorm.weight"] = (HIDDEN,)
    return shapes | {"model.norm.weight": (HIDDEN,)}


def weights_of(flat):
    """Views of a flat buffer by name."""
    views, at = {}, 0
    for name, shape in weight_shapes().items():
        size = torch.Size(shape).numel()
        views[name], at = flat[at : at + size].view(shape), at + size
    assert at == flat.numel() or flat.numel() == 0
    return views


def first_weights(seed):
    """A flat buffer of fresh weights: matrices that write into the residual stream begin at zero."""
    generator = torch.Generator().manual_seed(seed)
    flat = torch.empty(sum(torch.Size(s).numel() for s in weight_shapes().values()))
    for name, weight in weights_of(flat).items():
        if weight.ndim == 1:
            weight.fill_(1)
        elif "embed" in name:
            weight.normal_(std=0.02, generator=generator)
        elif "o_proj" in name or "down_proj" in name:
            weight.zero_()
        else:
            weight.uniform_(-weight.shape[1] ** -0.5, weight.shape[1] ** -0.5, generator=generator)
    return flat


def flat_of(weights):
    """A flat buffer in fp32 of weights by name."""
    return torch.cat([weights[name].float().flatten() for name in weight_shapes()])


def fused_weights(flat):
    """The weights as `loss` takes them: embeddings, per layer (norm, q k v, o, norm, gate up, down), norm."""
    w = weights_of(flat)

    def joined(first, rows):
        start = w[first].storage_offset() - flat.storage_offset()
        return flat[start : start + rows * HIDDEN].view(rows, HIDDEN)

    out = [w["model.embed_tokens.weight"]]
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        out += [
            w[layer + "input_layernorm.weight"],
            joined(layer + "self_attn.q_proj.weight", (HEADS + 2 * KV_HEADS) * WIDTH),
            w[layer + "self_attn.o_proj.weight"],
            w[layer + "post_attention_layernorm.weight"],
            joined(layer + "mlp.gate_proj.weight", 2 * MLP),
            w[layer + "mlp.down_proj.weight"],
        ]
    return out + [w["model.norm.weight"]]


def rope_table(tokens):
    """Cosines and sines, (tokens, WIDTH)."""
    angles = torch.outer(torch.arange(tokens).float(), THETA ** (-torch.arange(0, WIDTH, 2).float() / WIDTH))
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


class RmsNorm(torch.autograd.Function):
    """The norm with a backward pass by hand, which takes two thirds of the time of torch's."""

    @staticmethod
    def forward(ctx, x, weight):
        square = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32).square_()
        scale = square.div_(x.shape[-1]).add_(EPSILON).rsqrt_().to(x.dtype)
        y = x * scale
        ctx.save_for_backward(y, scale, weight)
        return y * weight

    @staticmethod
    def backward(ctx, grad):
        y, scale, weight = ctx.saved_tensors
        d_weight, grad = (grad * y).sum(0, dtype=torch.float32).to(weight.dtype), grad * weight
        along = torch.linalg.vecdot(grad, y).unsqueeze(-1) / y.shape[-1]
        return torch.addcmul(grad, y, along, value=-1).mul_(scale), d_weight


def turned(x, cos, sin):
    return x * cos + torch.cat([-x[..., WIDTH // 2 :], x[..., : WIDTH // 2]], -1) * sin


def loss(weights, ids, cos, sin, where, target):
    """The summed cross entropy of `target` at the flat positions `where` of `ids`, (batch, tokens).

    The last layer's MLP and the logits are computed at these positions alone.
    """
    batch, tokens = ids.shape
    rows, cos, sin = batch * KV_HEADS, cos[:tokens], sin[:tokens]
    x = F.embedding(ids, weights[0]).view(-1, HIDDEN)
    for i in range(LAYERS):
        norm1, qkv, o, norm2, gate_up, down = weights[1 + 6 * i : 7 + 6 * i]
        y = F.linear(RmsNorm.apply(x, norm1), qkv).view(batch, tokens, HEADS + 2 * KV_HEADS, WIDTH).transpose(1, 2)
        q, k, v = y.split([HEADS, KV_HEADS, KV_HEADS], 1)
        q = (turned(q, cos, sin) * WIDTH**-0.5).reshape(rows, GROUP, tokens, WIDTH)
        k, v = turned(k, cos, sin).reshape(rows, tokens, WIDTH), v.reshape(rows, tokens, WIDTH)
        mixed = Attention.apply(q, k, v).view(batch, HEADS, tokens, WIDTH).transpose(1, 2).reshape(-1, HIDDEN)
        if i == LAYERS - 1:
            x, mixed = x[where], mixed[where]
        x = x + F.linear(mixed, o)
        gate, up = F.linear(RmsNorm.apply(x, norm2), gate_up).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, down)
    logits = F.linear(RmsNorm.apply(x, weights[-1]), weights[0])
    return F.cross_entropy(logits.float(), target, reduction="sum")
