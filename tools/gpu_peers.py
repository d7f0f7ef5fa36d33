#!/usr/bin/env python3
"""S5 of the GPU check: transformers and torch on the same GPU, for the shapes of S4 (docs/CUDA.md).

  tools/gpu_peers.py [--models 1B,8B] [--seconds 100]

Random weights in bf16. Attention by cuDNN and by FlashAttention (torch's own), prefill and decode of
transformers' Llama with SDPA: eager, and with a static cache as one CUDA graph. Prints a line of JSON per
measurement; what a machine lacks is SKIP with its reason.
"""
import argparse
import json
import time

SHAPES = {"1B": dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
                     head_dim=64, intermediate_size=8192, vocab_size=128256),
          "8B": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                     head_dim=128, intermediate_size=14336, vocab_size=128256)}


def tell(name, shape, value, unit, verdict="INFO", note=""):
    print(json.dumps({"part": "S5.peers", "name": name, "shape": shape, "value": value, "unit": unit,
                      "verdict": verdict, "note": note}, separators=(",", ":")), flush=True)


def median_ms(torch, call, repeats=10):
    times = []
    for i in range(repeats + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        if i >= 2:
            times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def attention(torch):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    for d in (64, 128):
        q = torch.randn(1, 32, 8192, d, device="cuda", dtype=torch.bfloat16)
        k, v = (torch.randn(1, 32, 8192, d, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
            def call():
                with sdpa_kernel(backend):
                    torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            try:
                ms = median_ms(torch, call)
                tell(f"attention, {backend.name.lower()}", f"8192 causal, 32 heads of {d}",
                     2 * d * 32 * 8192**2 / ms * 1e-9, "TFLOP/s", note=f"{ms:.3f} ms")
            except Exception as error:  # a backend that this torch lacks
                tell(f"attention, {backend.name.lower()}", str(d), 0, "", "SKIP", str(error)[:200])


def model_of(torch, name):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(**SHAPES[name], max_position_embeddings=32768, tie_word_embeddings=True,
                         attn_implementation="sdpa")
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        return LlamaForCausalLM(config).eval()


def measure(torch, name):
    from transformers import StaticCache
    model = model_of(torch, name)
    with torch.inference_mode():
        for n in (512, 8192):
            ids = torch.randint(0, 128000, (1, n), device="cuda")
            ms = median_ms(torch, lambda: model(ids, use_cache=True, logits_to_keep=1), 5)
            tell(f"{name}, prefill, transformers eager", str(n), n / ms * 1000, "tok/s")
        for rows in (1, 32):
            ids = torch.randint(0, 128000, (rows, 1024), device="cuda")
            token = ids[:, :1]
            cache = model(ids, use_cache=True, logits_to_keep=1).past_key_values
            ms = median_ms(torch, lambda: model(token, past_key_values=cache, use_cache=True))
            tell(f"{name}, rows at 1 token each, transformers eager", f"{rows} x 1024", ms, "ms")
            del cache
            try:
                fixed = StaticCache(config=model.config, max_cache_len=1088)
                model(ids, past_key_values=fixed, use_cache=True, logits_to_keep=1,
                      cache_position=torch.arange(1024, device="cuda"))
                at = torch.tensor([1024], device="cuda")
                stream = torch.cuda.Stream()
                with torch.cuda.stream(stream):
                    for _ in range(3):
                        model(token, past_key_values=fixed, use_cache=True, cache_position=at)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    model(token, past_key_values=fixed, use_cache=True, cache_position=at)
                tell(f"{name}, rows at 1 token each, transformers as a CUDA graph", f"{rows} x 1024",
                     median_ms(torch, graph.replay), "ms")
                del graph, fixed
            except Exception as error:
                tell(f"{name}, rows, transformers as a CUDA graph", str(rows), 0, "", "SKIP", str(error)[:200])
    del model
    torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="1B,8B")
    parser.add_argument("--seconds", type=float, default=100)
    options = parser.parse_args()
    try:
        import torch
        import transformers
    except ImportError as error:
        return tell("peers", "", 0, "", "SKIP", str(error))
    if not torch.cuda.is_available():
        return tell("peers", "", 0, "", "SKIP", "torch sees no GPU")
    started = time.monotonic()
    tell("versions", f"torch {torch.__version__}, transformers {transformers.__version__}", 0, "")
    attention(torch)
    for name in options.models.split(","):
        if time.monotonic() - started > options.seconds:
            tell(name, "", 0, "", "SKIP", "no time was left")
            continue
        try:
            measure(torch, name)
        except Exception as error:
            tell(name, "", 0, "", "SKIP", str(error)[:300])
    return None


if __name__ == "__main__":
    main()
