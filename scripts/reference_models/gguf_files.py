"""GGUF files of small models with random weights, and what transformers computes with the same weights.

One case is one folder of tests/data/models: model.gguf, values.json (per tensor the CRC-32 of its values as little-endian
float32, dequantised by the gguf package, and the first four of them), cases.json and expected.safetensors as generate.py
makes them from the dequantised weights. Blocks of the K types are random bytes with fitting scales, the others are
quantised by the gguf package. gguf_llama has the tokenizer of tests/data/tokenizers/llama3-small.

    pip install -r requirements.txt
    python gguf_files.py --out ../../tests/data/models

Made with Python 3.11, gguf 0.19.0 and the versions of generate.py.
"""
import argparse
import json
import tempfile
import zlib
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as T
from transformers import AutoConfig, AutoModelForCausalLM

import generate

generate.ALL_POSITIONS_UP_TO = 17   # small files: the models are known from other cases
TOKENIZERS = Path(__file__).resolve().parents[2] / "tests/data/tokenizers"

# Types of the tensors of a layer, by layer.
CASES = [
    dict(name="gguf_llama", arch="LlamaForCausalLM", gguf="llama", model_type="llama", seed=3101, tokenizer="llama3-small",
         about="Llama as a GGUF file: Q4_K, Q5_K, Q6_K, Q8_0; rows of q and k in pairs, llama3 rope as divisors; a tokenizer",
         config=dict(vocab_size=1000, num_hidden_layers=2, hidden_size=256, intermediate_size=256, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=64, rms_norm_eps=1e-5, hidden_act="silu", rope_theta=500000.0,
                     max_position_embeddings=2048, tie_word_embeddings=False, bos_token_id=988, eos_token_id=[989, 996, 997],
                     rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                       original_max_position_embeddings=64)),
         types=dict(token_embd=T.Q6_K, output=T.Q8_0, attn_q=[T.Q4_K, T.Q5_K], attn_k=[T.Q4_K, T.Q8_0],
                    attn_v=[T.Q6_K, T.Q4_K], attn_output=[T.Q4_K, T.Q5_K], ffn_gate=[T.Q4_K, T.Q6_K],
                    ffn_up=[T.Q5_K, T.Q4_K], ffn_down=[T.Q6_K, T.Q4_K])),
    dict(name="gguf_qwen2", arch="Qwen2ForCausalLM", gguf="qwen2", model_type="qwen2", seed=3201,
         about="Qwen2 as a GGUF file: biases, Q4_0, Q4_1, Q5_0, Q5_1",
         config=dict(vocab_size=320, num_hidden_layers=2, hidden_size=64, intermediate_size=160, num_attention_heads=4,
                     num_key_value_heads=2, rms_norm_eps=1e-6, hidden_act="silu", rope_theta=1000000.0,
                     max_position_embeddings=2048, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2),
         types=dict(token_embd=T.Q5_1, output=T.Q5_1, attn_q=[T.Q4_0, T.Q5_0], attn_k=[T.Q4_1, T.Q4_0],
                    attn_v=[T.Q5_0, T.Q5_1], attn_output=[T.Q5_1, T.Q4_1], ffn_gate=[T.Q4_0, T.Q5_0],
                    ffn_up=[T.Q4_1, T.Q4_0], ffn_down=[T.Q5_0, T.Q4_1])),
    dict(name="gguf_qwen3", arch="Qwen3ForCausalLM", gguf="qwen3", model_type="qwen3", seed=3301,
         about="Qwen3 as a GGUF file: norms of q and k heads, heads wider than their share, F32, F16, BF16, Q8_0",
         config=dict(vocab_size=320, num_hidden_layers=2, hidden_size=64, intermediate_size=96, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-6, hidden_act="silu", rope_theta=1000000.0,
                     max_position_embeddings=2048, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2),
         types=dict(token_embd=T.BF16, output=T.F16, attn_q=[T.F16, T.Q8_0], attn_k=[T.BF16, T.F32], attn_v=[T.F32, T.F16],
                    attn_output=[T.Q8_0, T.BF16], ffn_gate=[T.F16, T.Q8_0], ffn_up=[T.BF16, T.F16],
                    ffn_down=[T.Q8_0, T.F32])),
]
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
         "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def gguf_name(name):
    """"model.layers.1.mlp.up_proj.weight" -> ("blk.1.ffn_up.weight", "ffn_up", 1)"""
    module, _, end = name.rpartition(".")
    layer = None
    if module.startswith("model.layers."):
        layer, module = module.removeprefix("model.layers.").split(".", 1)
    leaf = NAMES[module]
    return (f"blk.{layer}." if layer else "") + f"{leaf}.{end}", leaf, int(layer or 0)


def in_pairs(w, heads):
    """Llama's q and k: the two rows that rope rotates with each other lie side by side."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def in_halves(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def random_blocks(kind, shape, std, rng):
    """Random K blocks whose values have about this deviation and no mean."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (shape[0], shape[1] // block, size), dtype=np.uint8)
    half = lambda x: np.full(raw.shape[:2], x, np.float16).view(np.uint8).reshape(*raw.shape[:2], 2)  # noqa: E731
    d = std / {T.Q4_K: 270.0, T.Q5_K: 550.0, T.Q6_K: 1370.0}[kind]
    if kind == T.Q6_K:
        raw[..., 208:210] = half(d)
    else:
        raw[..., 0:2], raw[..., 2:4] = half(d), half(d * (7.5 if kind == T.Q4_K else 15.5))
    return raw.reshape(shape[0], -1)


def quantized(kind, w, rng):
    if kind in (T.Q4_K, T.Q5_K, T.Q6_K):
        return random_blocks(kind, w.shape, w.std(), rng)
    return gguf.quants.quantize(w, kind)


def write_tokenizer(writer, name):
    folder = TOKENIZERS / name
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocab = dict(tokenizer["model"]["vocab"])
    added = {t["content"]: t for t in tokenizer["added_tokens"]}
    vocab |= {content: t["id"] for content, t in added.items()}
    tokens = sorted(vocab, key=vocab.get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if added.get(t, {}).get("special") else 4 if t in added else 1 for t in tokens])
    writer.add_token_merges([" ".join(m) for m in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(988)
    writer.add_eos_token_id(989)
    writer.add_eot_token_id(997)
    writer.add_uint32("tokenizer.ggml.eom_token_id", 996)
    writer.add_chat_template(json.loads((folder / "tokenizer_config.json").read_text())["chat_template"])


def rope_divisors(config):
    """What the converter of llama.cpp makes of llama3 scaling."""
    s, dim = config["rope_scaling"], config["head_dim"]
    frequencies = 1.0 / config["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    low = s["original_max_position_embeddings"] / s["low_freq_factor"]
    high = s["original_max_position_embeddings"] / s["high_freq_factor"]
    divisors = []
    for f in frequencies:
        length = 2 * torch.pi / f
        smooth = (s["original_max_position_embeddings"] / length - s["low_freq_factor"]) / (
            s["high_freq_factor"] - s["low_freq_factor"])
        divisors.append(1.0 if length < high else s["factor"] if length > low else
                        1 / ((1 - smooth) / s["factor"] + smooth))
    return np.array(divisors, dtype=np.float32)


def write_metadata(writer, case):
    c = case["config"]
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_rope_freq_base(c["rope_theta"])
    writer.add_vocab_size(c["vocab_size"])
    if "head_dim" in c:
        writer.add_key_length(c["head_dim"])
        writer.add_value_length(c["head_dim"])
    if case["gguf"] == "llama":
        writer.add_rope_dimension_count(c["head_dim"])
    writer.add_quantization_version(2)
    if "tokenizer" in case:
        write_tokenizer(writer, case["tokenizer"])
    else:
        writer.add_eos_token_id(c["eos_token_id"])


def write_file(case, seed, path, folder):
    """model.gguf of random weights, and the same weights, dequantised, as a float32 checkpoint in `folder`."""
    config = AutoConfig.for_model(case["model_type"], **json.loads(json.dumps(case["config"])))
    model = generate.make_model(config)
    generate.fill(model, case, seed)
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, case["gguf"])
    write_metadata(writer, case)
    state, values = {}, {}
    if case["gguf"] == "llama":
        writer.add_tensor("rope_freqs.weight", rope_divisors(case["config"]))
    for name, p in model.state_dict().items():
        w, (stored, leaf, layer) = p.detach().float().numpy(), gguf_name(name)
        kind = case["types"].get(leaf, T.F32) if name.endswith(".weight") and w.ndim == 2 else T.F32
        kind = kind[layer] if isinstance(kind, list) else kind
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(leaf)
        paired = case["gguf"] == "llama" and heads is not None
        raw = quantized(kind, in_pairs(w, heads) if paired else w, rng)
        writer.add_tensor(stored, raw, raw_dtype=kind)
        plain = gguf.quants.dequantize(raw, kind).astype(np.float32).reshape(w.shape)
        values[stored] = {"type": kind.name, "shape": list(w.shape), "crc32": zlib.crc32(plain.astype("<f4").tobytes()),
                          "first": [float(v) for v in plain.flat[:4]]}
        state[name] = torch.from_numpy(in_halves(plain, heads).copy() if paired else plain.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model.load_state_dict(state, strict=True)
    model.float().save_pretrained(folder)
    (path.parent / "values.json").write_text(json.dumps(values, indent=1) + "\n")


def make_case(case, out):
    folder = Path(out) / case["name"]
    folder.mkdir(parents=True, exist_ok=True)
    case = case | {"dtype": "float32", "init": case.get("init", {"echo": 3.0, "qk": 1.2})}
    for seed in range(case["seed"], case["seed"] + 50):
        with tempfile.TemporaryDirectory() as temporary:
            write_file(case, seed, folder / "model.gguf", Path(temporary))
            body = generate.measure(case, seed, Path(temporary), folder)
        if body is not None:
            return body
    raise RuntimeError(f"{case['name']}: no seed gives enough clear steps")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder that gets a folder per case")
    args = parser.parse_args()
    for case in CASES:
        s = make_case(case, args.out)["summary"]
        print(f"{case['name']:20} fp32/fp64 {s['fp32_vs_fp64']['rel_l2_max']:.1e}  "
              f"bf16/fp32 median {s['bf16_vs_fp32']['rel_l2_median']:.4f}", flush=True)


if __name__ == "__main__":
    main()
