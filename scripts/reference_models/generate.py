"""Reference values of small Hugging Face models with seeded random weights.

One case is one folder of tests/data/models: a checkpoint in Hugging Face layout, cases.json and expected.safetensors;
tests/data/models/README.md describes the files, cases.py holds the list of models. Three runs of the same weights give
the values:

  fp32  weights upcast to float32, eager attention: the reference
  fp64  the same graph in float64 throughout, the places where transformers asks for float32 included: the gold
  bf16  transformers' own bfloat16 inference, eager attention: the yardstick for a bfloat16 engine

    pip install -r requirements.txt
    python generate.py --out ../../tests/data/models [--only NAME]...

Made with Python 3.11, torch 2.15.0, transformers 5.23.0, safetensors 0.8.0, numpy 2.4.6; the same versions give the same
bytes on the same kind of CPU.
"""
import argparse
import hashlib
import json
import math
import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache
from transformers.utils import logging as hf_logging

hf_logging.set_verbosity_error()
hf_logging.disable_progress_bar()
torch.set_num_threads(1)

LENGTHS = [1, 2, 17, 64, 65, 200, 613]   # prompt lengths; up to 65 every position is stored
ALL_POSITIONS_UP_TO = 65
DEBUG_LENGTH = 17                        # prompt with stored hidden states and layer-0 KV
NEW_TOKENS = 32
MIN_CLEAR_STEPS = 90                     # over all continuations, for bfloat16
ROUTER_MARGIN = 0.1                      # MoE: min gap between the last chosen and the first refused expert
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


# ---- weights ---------------------------------------------------------------------------------------------------------

def config_dict(case):
    """config.json in the older spelling (rope_theta, rope_scaling, torch_dtype) that most published checkpoints use."""
    head = {"architectures": [case["arch"]], "model_type": case["model_type"], "torch_dtype": case["dtype"]}
    return head | case["config"]


def make_config(case, changes=None):
    d = {k: v for k, v in config_dict(case).items() if k not in ("torch_dtype", "architectures")} | (changes or {})
    d = json.loads(json.dumps(d))  # a private copy: the config class edits nested dicts in place
    return AutoConfig.for_model(**d)


def make_model(config):
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager")


def draw(name, shape, seed):
    """Normal numbers that depend on the seed, the name and the shape only."""
    key = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.randn(shape, generator=torch.Generator().manual_seed(int.from_bytes(key[:7], "little")))


def fill(model, case, seed):
    """Random weights that keep activations and logits at a realistic size; norm weights near 1, no bias zero.

    With tied embeddings a random model repeats its input: the residual stream still points to the last token. There
    the weights of the final norm get random signs, which turns it away.

    init["echo"] plants a successor for every token into a separate LM head (one cycle through the vocabulary), so that
    most steps have a clear winner, as in a trained model.
    """
    tied = model.config.tie_word_embeddings
    vocab = model.config.vocab_size
    init = {"embed": 1.0, "logits": 2.0, "qk": 1.4, "vo": 1.0, "mlp": 1.2, "out": 1.0, "router": 2.0,
            "norm": 0.15, "post_norm": 0.0, "bias": 0.2, "qkv_bias": 0.5, "echo": 0.0,
            "correction": 0.15} | case.get("init", {})
    centre = 0.0 if case["model_type"].startswith("gemma") else 1.0   # Gemma multiplies by 1 + weight
    for name, p in model.named_parameters():
        n = draw(name, p.shape, seed)
        leaf = name.split(".")[-2] if name.endswith((".weight", ".bias")) else name.split(".")[-1]
        if name.endswith(".bias"):
            value = n * (init["qkv_bias"] if leaf in ("q_proj", "k_proj", "v_proj") else init["bias"])
        elif p.dim() == 1:                                                              # norms
            post = "post_" in leaf and case["model_type"] in ("gemma2", "gemma3_text")
            value = 1.0 + (init["post_norm"] if post else 0.0) + init["norm"] * n
            if tied and name in ("model.norm.weight", "transformer.ln_f.weight"):
                value *= draw(name + "/sign", p.shape, seed).sign()
            value -= 1.0 - centre
        elif leaf in ("embed_tokens", "word_embeddings"):
            value = n * (init["logits"] / math.sqrt(p.shape[-1]) if tied else init["embed"])
        else:
            gain = {"lm_head": init["logits"], "q_proj": init["qk"], "k_proj": init["qk"], "v_proj": init["vo"],
                    "qkv_proj": init["qk"], "query_key_value": init["qk"], "q_b_proj": init["qk"],
                    "kv_a_proj_with_mqa": init["qk"], "kv_b_proj": init["qk"],
                    "gate": init["router"], "o_proj": init["out"], "dense": init["out"], "down_proj": init["out"],
                    "dense_4h_to_h": init["out"]}.get(leaf, init["mlp"])
            value = n * gain / math.sqrt(p.shape[-1])
        p.data.copy_(value)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.data.copy_(init["correction"] * draw(name, buffer.shape, seed))
    if init["echo"]:
        gen = torch.Generator().manual_seed(seed)
        cycle = torch.randperm(vocab, generator=gen)
        tokens = torch.nn.functional.normalize(model.get_input_embeddings().weight.data[cycle], dim=-1)
        model.get_output_embeddings().weight.data[cycle.roll(-1)] += init["echo"] * tokens


def save_checkpoint(case, seed, folder):
    """The checkpoint as transformers writes it, and config.v4.json. All later runs read these files."""
    model = make_model(make_config(case))
    fill(model, case, seed)
    model.tie_weights()
    corrections = {n: b.clone() for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")}
    model.to(DTYPES[case["dtype"]])
    for name, value in corrections.items():   # float32 in published checkpoints too
        model.get_submodule(name.rsplit(".", 1)[0]).e_score_correction_bias = value
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size=case.get("max_shard_size", "1GB"))
    (folder / "config.v4.json").write_text(json.dumps(config_dict(case), indent=2) + "\n")


def load(folder, dtype, mistake=None):
    """from_pretrained keeps the rope frequencies in float32; model.to(bfloat16) would round them to bfloat16."""
    config = AutoConfig.from_pretrained(folder)
    mistake = dict(mistake or {})
    overwrite = {k: mistake.pop(k) for k in ("zero", "one") if k in mistake}
    for key, value in mistake.items():
        if key == "rope_parameters" and "rope_type" not in value and "full_attention" not in value:
            value = config.rope_parameters | value
        setattr(config, key, value)
    model = AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=dtype, attn_implementation="eager", experts_implementation="eager")
    model.generation_config.eos_token_id = None                      # continuations run to their full length
    for kind, pattern in overwrite.items():
        hit = [p for name, p in [*model.named_parameters(), *model.named_buffers()] if re.search(pattern, name)]
        assert hit, pattern
        for p in hit:
            p.data.fill_(0.0 if kind == "zero" else 1.0)
    return model.eval()


class Float64Everywhere(TorchFunctionMode):
    """Reads every request for float32 as a request for float64 and refuses float32 results."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            return args[0].double()
        swap = lambda a: torch.float64 if a is torch.float32 else a  # noqa: E731
        result = func(*map(swap, args), **{k: swap(v) for k, v in (kwargs or {}).items()})
        if isinstance(result, torch.Tensor) and result.dtype in (torch.float32, torch.complex64):
            raise TypeError(f"{func} gave {result.dtype} inside the float64 run")
        return result

    def __enter__(self):
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *exc):
        super().__exit__(*exc)
        torch.set_default_dtype(torch.float32)


def gold_model(fp32_model):
    """A float64 twin of a loaded model. Rope frequencies are computed in float64 from the config."""
    weights = {k: v.double() for k, v in fp32_model.state_dict().items()}
    config = json_copy(fp32_model.config)
    config.dtype = torch.float64
    with Float64Everywhere():
        twin = make_model(config)
    twin.load_state_dict(weights, strict=True)
    return twin.eval()


def json_copy(config):
    return type(config).from_dict(json.loads(config.to_json_string(use_diff=False)))


# ---- runs ------------------------------------------------------------------------------------------------------------

def base_of(model):
    return model.transformer if hasattr(model, "transformer") else model.model


def layers_of(model):
    base = base_of(model)
    return base.h if hasattr(base, "h") else base.layers


@torch.no_grad()
def forward(model, tokens):
    """Logits of all positions, without a KV cache."""
    return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


@torch.no_grad()
def generate(model, tokens, count=NEW_TOKENS):
    """Greedy continuation with transformers' KV cache: (tokens, logits [count, vocab])."""
    ids = torch.tensor([tokens])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count,
                         use_cache=True, pad_token_id=0, return_dict_in_generate=True, output_logits=True)
    return out.sequences[0, len(tokens):].tolist(), torch.cat(out.logits).float()


@torch.no_grad()
def debug_run(model, tokens):
    """Hidden states around every layer, and what layer 0 puts into the KV cache."""
    seen, hooks = {}, []
    first = lambda o: (o[0] if isinstance(o, tuple) else o)[0].clone()  # noqa: E731
    layers, base = layers_of(model), base_of(model)
    hooks.append(layers[0].register_forward_pre_hook(
        lambda m, a, k: seen.__setitem__("embed", first(a if a else k["hidden_states"])), with_kwargs=True))
    for i, layer in enumerate(layers):
        hooks.append(layer.register_forward_hook(lambda m, a, o, i=i: seen.__setitem__(f"layer{i}", first(o))))
    norm = base.ln_f if hasattr(base, "ln_f") else base.norm
    hooks.append(norm.register_forward_hook(lambda m, a, o: seen.__setitem__("final_norm", first(o))))
    cache = DynamicCache(config=model.config)
    model(input_ids=torch.tensor([tokens]), past_key_values=cache, use_cache=True)
    for h in hooks:
        h.remove()
    result = {f"debug.hidden.{k}": v for k, v in seen.items()}
    k, v = cache.layers[0].keys[0], cache.layers[0].values[0]
    if model.config.model_type in ("deepseek_v2", "deepseek_v3"):
        rope = v[0]
        if model.config.model_type == "deepseek_v3":   # the cache has the halves of pairs one after the other
            rope = rope.view(len(rope), 2, -1).transpose(1, 2).reshape(len(rope), -1)
        result["debug.layer0.latent"], result["debug.layer0.k_rope"] = k[0], rope
    else:
        result["debug.layer0.k"], result["debug.layer0.v"] = k, v
    return {k: v.contiguous() for k, v in result.items()}


@torch.no_grad()
def router_margins(model, tokens):
    """[positions]: per position the min gap, over layers, between the last chosen and the first refused expert."""
    found, hooks = [], []
    for m in model.modules():
        if type(m).__name__.lower().endswith("topkrouter"):
            hooks.append(m.register_forward_hook(lambda m, a, o: found.append(router_gap(m, o[0]))))
    if hooks:
        forward(model, tokens)
    for h in hooks:
        h.remove()
    return torch.stack(found).amin(0) if found else None


def router_gap(router, logits):
    """[rows]: how far the choice is from another one: of experts, and of groups of them where groups are chosen first.
    Of sigmoid scores four times the gap: at least so far the logits are apart."""
    if getattr(router, "e_score_correction_bias", None) is None:
        scores, scale, terms = logits, 1, 1
        n_groups = router.num_group if getattr(router, "topk_method", "") == "group_limited_greedy" else 1
    else:
        scores, scale, terms, n_groups = logits.sigmoid() + router.e_score_correction_bias, 4, 2, router.num_group
    gap = torch.full((len(scores),), float("inf"), dtype=scores.dtype)
    if (n_groups or 1) > 1:
        groups = scores.view(len(scores), n_groups, -1)
        best = groups.topk(terms, -1).values.sum(-1).sort(-1, descending=True)
        gap = best.values[:, router.topk_group - 1] - best.values[:, router.topk_group]
        keep = torch.zeros_like(best.values).scatter_(1, best.indices[:, :router.topk_group], 1).bool()
        scores = groups.masked_fill(~keep[..., None], -1e30).flatten(1)
    top = scores.sort(-1, descending=True).values
    return scale * torch.minimum(gap, top[:, router.top_k - 1] - top[:, router.top_k])


# ---- one case --------------------------------------------------------------------------------------------------------

def windows_of(config):
    w = getattr(config, "sliding_window", None)
    return [w] if w else []


def stored_positions(n, marks):
    if n <= ALL_POSITIONS_UP_TO:
        return list(range(n))
    wanted = {0, 31, 63, 64, 127, 128, 255, 256, 511, 512, n - 2, n - 1}
    for m in marks:
        wanted |= {m - 1, m, m + 1, 2 * m}
    return sorted(p for p in wanted if 0 <= p < n)


def prompt_tokens(case, seed, length, model):
    """Uniform random ids. MoE: drawn again until no router of the last position is close to a tie."""
    for attempt in range(1000):
        key = hashlib.sha256(f"{seed}/prompt/{length}/{attempt}".encode()).digest()
        gen = torch.Generator().manual_seed(int.from_bytes(key[:7], "little"))
        tokens = torch.randint(0, case["config"]["vocab_size"], (length,), generator=gen).tolist()
        margins = router_margins(model, tokens)
        if margins is None or margins[-1] >= ROUTER_MARGIN:
            return tokens, margins
    raise RuntimeError(f"{case['name']}: no prompt of {length} tokens with a clear expert choice")


def error(got, want):
    """(max |got - want|, |got - want| / |want|) per row, in float64."""
    d, w = got.double() - want.double(), want.double()
    return d.abs().amax(-1), d.norm(dim=-1) / w.norm(dim=-1)


def digits(x, n=4):
    return float(f"{float(x):.{n}g}")


def quantile(values, q):
    return digits(torch.cat(values).double().quantile(q))


def is_lively(tokens, prompt_length):
    """A continuation that has not collapsed: many different tokens and, after a real prompt, few repetitions."""
    runs = max(len(r) for r in "".join("x" if a == b else " " for a, b in zip(tokens, tokens[1:])).split(" "))
    return len(set(tokens)) >= 8 if prompt_length < 17 else len(set(tokens)) >= 12 and runs <= 2


def find_seed(case, first, folder):
    """The first seed, counted from `first`, whose continuations do not collapse."""
    for seed in range(first, first + 50):
        save_checkpoint(case, seed, folder)
        model = load(folder, torch.float32)
        if all(is_lively(generate(model, prompt_tokens(case, seed, n, model)[0])[0], n) for n in LENGTHS):
            return seed
    raise RuntimeError(f"{case['name']}: all continuations collapse; change init")


def make_case(case, out):
    """The case of the first seed with enough clear steps where transformers' own bfloat16 run, fed the expected tokens,
    agrees at each of them: near a tie of two experts it may not, whatever the margin."""
    seed, body = case["seed"], None
    while body is None:
        seed, body = try_seed(case, seed, Path(out) / case["name"])
    return body


def try_seed(case, first, folder):
    """(next seed, None) or (seed, the body of cases.json)."""
    seed = find_seed(case, first, folder)
    body = measure(case, seed, folder, folder)
    return (seed + 1, None) if body is None else (seed, body)


def measure(case, seed, folder, out):
    """Writes cases.json and expected.safetensors of the checkpoint in `folder` into `out` and returns the body of
    cases.json, or returns None where bfloat16 has too few clear steps or fails at one."""
    fp32, bf16 = load(folder, torch.float32), load(folder, torch.bfloat16)
    gold = gold_model(fp32)
    marks = windows_of(fp32.config) + case.get("marks", [])

    tensors, prompts, pool = {}, [], {k: [] for k in ("fp32_abs", "fp32_rel", "bf16_abs", "bf16_rel")}
    for n in LENGTHS:
        name = f"p{n}"
        tokens, margins = prompt_tokens(case, seed, n, fp32)
        where = stored_positions(n, marks)
        ref = forward(fp32, tokens)[where]
        with Float64Everywhere():
            best = forward(gold, tokens)[where]
        low = forward(bf16, tokens)[where].float()
        f_abs, f_rel = error(ref, best)
        b_abs, b_rel = error(low, ref)
        for key, value in zip(pool, (f_abs, f_rel, b_abs, b_rel)):
            pool[key].append(value)
        tensors |= {f"{name}.logits": ref, f"{name}.gold_last": best[-1], f"{name}.bf16_last": low[-1].bfloat16()}
        if margins is not None:
            tensors[f"{name}.router_margin"] = margins[where].float()
        prompt = {"name": name, "tokens": tokens, "positions": where,
                  "fp32_vs_fp64": {"max_abs": digits(f_abs[-1]), "rel_l2": digits(f_rel[-1])},
                  "bf16_vs_fp32": {"max_abs": digits(b_abs[-1]), "rel_l2": digits(b_rel[-1])}}
        if n == DEBUG_LENGTH:
            tensors |= debug_run(fp32, tokens)
        prompts.append(prompt | {"greedy": greedy(case, fp32, bf16, tokens)})

    summary = {
        "fp32_vs_fp64": {"rel_l2_median": quantile(pool["fp32_rel"], 0.5), "rel_l2_max": quantile(pool["fp32_rel"], 1),
                         "max_abs": quantile(pool["fp32_abs"], 1)},
        "bf16_vs_fp32": {"rel_l2_median": quantile(pool["bf16_rel"], 0.5), "rel_l2_p90": quantile(pool["bf16_rel"], 0.9),
                         "rel_l2_max": quantile(pool["bf16_rel"], 1), "max_abs_p90": quantile(pool["bf16_abs"], 0.9),
                         "max_abs": quantile(pool["bf16_abs"], 1)},
        "logits_std": digits(torch.cat([tensors[f"p{n}.logits"] for n in LENGTHS]).std()),
        "positions": sum(len(p["positions"]) for p in prompts),
    }
    set_bounds(prompts, summary)
    clear = sum(p["greedy"]["clear_steps_bf16"] for p in prompts)
    if clear < MIN_CLEAR_STEPS or not all(agrees(bf16, p) for p in prompts):
        return None
    body = {"name": case["name"], "architecture": case["arch"], "weights": case["dtype"], "seed": seed,
            "about": case["about"], "notes": case.get("notes", []), "summary": summary,
            "mistakes": mistakes(case, folder, prompts, tensors, pool), "prompts": prompts}
    (out / "cases.json").write_text(compact_json(body))
    save_file({k: v.contiguous() for k, v in sorted(tensors.items())}, out / "expected.safetensors")
    for file in out.iterdir():
        file.chmod(0o644)
    return body


def agrees(bf16, prompt):
    """Whether the bfloat16 run says the expected token at every step that is clear to it."""
    expected = prompt["greedy"]
    said = forward(bf16, prompt["tokens"] + expected["tokens"])[len(prompt["tokens"]) - 1:-1].argmax(-1).tolist()
    return all(s == t or m < expected["clear_margin_bf16"]
               for s, t, m in zip(said, expected["tokens"], expected["margin"]))


def mistakes(case, folder, prompts, tensors, pool):
    """How far typical mistakes move the logits: the largest relative L2 error per mistake. Each must be noticed."""
    result = {}
    for kind, limit in (("mistakes", 1.5 * torch.cat(pool["bf16_rel"]).quantile(0.9)),
                        ("small_mistakes", 4 * torch.cat(pool["fp32_rel"]).max())):
        for name, mistake in case.get(kind, {}).items():
            model = load(folder, torch.float32, mistake)
            worst = max(error(forward(model, p["tokens"])[p["positions"]], tensors[f"{p['name']}.logits"])[1].max().item()
                        for p in prompts)
            if worst < 2 * limit:
                raise AssertionError(f"{case['name']}: '{name}' moves the logits by {worst:.2g} only, bound {limit:.2g}")
            result[name] = {"rel_l2_max": digits(worst, 3), "seen_in": "bf16" if kind == "mistakes" else "fp32"}
    return result


def greedy(case, fp32, bf16, tokens):
    """32 greedy tokens of the fp32 run with top-1 to top-2 gaps, checked against a forward pass without a cache."""
    new, logits = generate(fp32, tokens)
    top = logits.topk(2, -1)
    margin = (top.values[:, 0] - top.values[:, 1]).tolist()
    result = {"tokens": new, "margin": [digits(m) for m in margin], "runner_up": top.indices[:, 1].tolist()}
    same = 0
    for a, b in zip(new, generate(bf16, tokens)[0]):
        if a != b:
            break
        same += 1
    result["bf16_equal_steps"] = same
    full = forward(fp32, tokens + new)[len(tokens) - 1:-1]
    gap = (full - logits).abs().max().item()
    if gap > 2e-4:
        raise AssertionError(f"{case['name']} p{len(tokens)}: cached and full logits differ by {gap}")
    result["cached_vs_full_max_abs"] = digits(gap, 2)
    return result


def set_bounds(prompts, summary):
    """What an engine may differ by. README.md says how they are meant."""
    f, b = summary["fp32_vs_fp64"], summary["bf16_vs_fp32"]
    for p in prompts:
        own_f, own_b = p["fp32_vs_fp64"], p["bf16_vs_fp32"]
        p["bound_fp32"] = {"rel_l2": digits(4 * f["rel_l2_max"], 3), "max_abs": digits(4 * f["max_abs"], 3)}
        p["bound_bf16"] = {"rel_l2": digits(1.5 * max(own_b["rel_l2"], b["rel_l2_p90"]), 3),
                           "max_abs": digits(1.5 * max(own_b["max_abs"], b["max_abs_p90"]), 3)}
        for kind in ("fp32", "bf16"):
            limit = 2 * p[f"bound_{kind}"]["max_abs"]
            clear = [m >= limit for m in p["greedy"]["margin"]]
            p["greedy"][f"clear_margin_{kind}"] = digits(limit, 3)
            p["greedy"][f"clear_steps_{kind}"] = sum(clear)
            p["greedy"][f"clear_from_start_{kind}"] = (clear + [False]).index(False)
    summary["bound_bf16_median_rel_l2"] = digits(1.25 * b["rel_l2_median"], 3)


def compact_json(body):
    """Indented JSON with lists of numbers on one line."""
    text = json.dumps(body, indent=1, ensure_ascii=False)
    return re.sub(r"\[\s+([-\d.,e+\s]+?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m.group(1)) + "]", text) + "\n"


def main():
    import cases
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder that gets a folder per case")
    parser.add_argument("--only", action="append", default=[], help="names of cases")
    args = parser.parse_args()
    for case in cases.MODELS:
        if args.only and case["name"] not in args.only:
            continue
        s = make_case(case, args.out)["summary"]
        print(f"{case['name']:20} fp32/fp64 {s['fp32_vs_fp64']['rel_l2_max']:.1e}  "
              f"bf16/fp32 median {s['bf16_vs_fp32']['rel_l2_median']:.4f}  logits std {s['logits_std']:.2f}", flush=True)


if __name__ == "__main__":
    main()
