"""Evaluates an exported model with Hugging Face transformers, whose code is not the trainer's."""

import collections
import gzip
import json

import torch
import torch.multiprocessing as multiprocessing
import transformers
from transformers import AutoTokenizer, LlamaForCausalLM

import evaluation_set
import tokenizer
from chat_template import assistant_text, render
from simulated_types import simulate
from story_check import story_is_right

KINDS = ["fp32", "bf16", "int8_weights", "int4_weights", "int8_kv"]
GREEDY = 40  # prompts whose greedy decoding is stored
END = (0, 2)
NOTE = (
    "accuracy: share of prompts whose greedy answer is exactly the expected tokens (stories: follows the grammar); "
    "greedy: fp32 compute from the bf16 weights, margin = top-1 minus top-2 logit of each step"
)


def part_of(kind, rows):
    """Quantisation is measured on every second prompt."""
    return rows[::2] if kind.startswith("int") else rows


def rows_of(folder):
    """The lines of eval.jsonl.gz; the template in Python and in Jinja2 must agree on each."""
    own, hf, rows = tokenizer.load(folder), AutoTokenizer.from_pretrained(folder), []
    for i, (category, messages, tools) in enumerate(evaluation_set.prompts(tokenizer.counter(own))):
        pieces = render(messages, tools)
        prompt, expected = "".join(text for text, _ in pieces[:-1]), pieces[-1][0]
        assert prompt == hf.apply_chat_template(
            messages[:-1], tools=tools, tokenize=False, add_generation_prompt=True
        ), category
        ids = own.encode(prompt, add_special_tokens=False).ids
        assert ids == hf(prompt, add_special_tokens=False)["input_ids"], category
        row = dict(
            id=f"{category}-{i}",
            category=category,
            context=len(ids),
            messages=messages[:-1],
            prompt_ids=ids,
            expected=None if category == "story" else assistant_text(messages[-1]),
        )
        if tools:
            row["tools"] = tools
        if category != "story":
            row["expected_ids"] = own.encode(expected, add_special_tokens=False).ids
        rows.append(row)
    return rows


def greedy(model, ids, max_tokens=220):
    """Token ids of greedy decoding and the margin between the best and the second-best logit of each step."""
    out, margins, cache, now = [], [], None, torch.tensor([ids])
    while len(out) < max_tokens and (not out or out[-1] not in END):
        result = model(now, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, best = result.past_key_values, result.logits[0, -1].float().topk(2)
        out.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 5))
        now = torch.tensor([out[-1:]])
    return out, margins


def loaded(folder, kind):
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16 if kind == "bf16" else torch.float32).eval()
    simulate(model, kind)
    return model


def score(folder, kind, rows, chosen):
    """(kind, whether each row's greedy answer is right, greedy decodings of the chosen rows)"""
    model, own, right = loaded(folder, kind), tokenizer.load(folder), []
    for row in rows:
        if row["expected"] is None:
            out, _ = greedy(model, row["prompt_ids"])
            right.append(out[-1] == 2 and story_is_right(row["messages"][-1]["content"], own.decode(out[:-1])))
            continue
        # Greedy decoding yields exactly these tokens if each one is the best after the ones before.
        want = row["expected_ids"]
        logits = model(torch.tensor([row["prompt_ids"] + want[:-1]]), use_cache=False, logits_to_keep=len(want)).logits[
            0
        ]
        right.append(logits.argmax(-1).tolist() == want)
    runs = [(row, *greedy(model, row["prompt_ids"])) for row in chosen]
    return (
        kind,
        right,
        [
            dict(id=row["id"], token_ids=out, text=own.decode(out, skip_special_tokens=True), margin=margin)
            for row, out, margin in runs
        ],
    )


def score_small_sums(folder):
    """How many of the 10,000 sums of numbers below 100 are right, and the questions of wrong ones."""
    model, own, by_length, wrong = loaded(folder, "fp32"), tokenizer.load(folder), collections.defaultdict(list), []
    for messages in evaluation_set.all_small_sums():
        prompt, expected = [own.encode(text).ids for text, _ in render(messages)]
        by_length[len(prompt), len(expected)].append((messages[0]["content"], prompt + expected))
    for (_, n), group in by_length.items():
        for at in range(0, len(group), 64):
            ids = torch.tensor([ids for _, ids in group[at : at + 64]])
            best = model(ids[:, :-1], use_cache=False, logits_to_keep=n).logits.argmax(-1)
            wrong += [group[at + i][0] for i in (best != ids[:, -n:]).any(-1).nonzero().flatten().tolist()]
    return dict(n=10000, correct=10000 - len(wrong), wrong=sorted(wrong))


def table_of(rows, right):
    table = {}
    for row, is_right in zip(rows, right):
        cell = table.setdefault(row["category"], dict(n=0, correct=0))
        cell["n"], cell["correct"] = cell["n"] + 1, cell["correct"] + bool(is_right)
    for cell in table.values():
        cell["accuracy"] = round(cell["correct"] / cell["n"], 4)
    return table


def chosen_of(rows):
    """One or two rows of each category, GREEDY in all."""
    ranked, seen = [], collections.Counter()
    for i, row in enumerate(rows):
        ranked.append((seen[row["category"]], i))
        seen[row["category"]] += 1
    return [rows[i] for _, i in sorted(sorted(ranked)[:GREEDY])]


def markdown(tables, names):
    """The table of README.md, in percent."""

    def percent(cells):
        return f"{100 * sum(c['correct'] for c in cells) / sum(c['n'] for c in cells):.1f}"

    lines = [
        "| category | prompts | fp32 | bf16 | every second prompt | fp32 | int8 weights | int4 weights | int8 KV |",
        "|---" * 9 + "|",
    ]
    for label, some in [(name, [name]) for name in names] + [("all", names)]:

        def cells(kind):
            return [tables[kind][name] for name in some]

        def total(kind):
            return sum(c["n"] for c in cells(kind))

        lines.append(
            f"| {label} | {total('fp32')} | {percent(cells('fp32'))} | {percent(cells('bf16'))} | {total('fp32_second')} | "
            + " | ".join(percent(cells(kind)) for kind in ("fp32_second", "int8_weights", "int4_weights", "int8_kv"))
            + " |"
        )
    return "\n".join(lines) + "\n"


def show(kind, rows, right):
    table = table_of(rows, right)
    print(
        kind,
        {name: f"{cell['correct']}/{cell['n']}" for name, cell in table.items()},
        "all",
        sum(right),
        "of",
        len(right),
        flush=True,
    )


def evaluate(work, quick):
    folder = work / "hf"
    rows = rows_of(folder)
    if quick:
        rows = [row for i, row in enumerate(rows) if i % 4 == 0 and row["context"] < 1200]
        show("fp32", rows, score(folder, "fp32", rows, [])[1])
        sums = score_small_sums(folder)
        print("sums below 100:", sums["correct"], "of", sums["n"], "wrong:", sums["wrong"][:20])
        return
    tables, runs = {}, []
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        small = pool.apply_async(score_small_sums, (folder,))
        jobs = [
            pool.apply_async(score, (folder, kind, part_of(kind, rows), chosen_of(rows) if kind == "fp32" else []))
            for kind in KINDS
        ]
        for job in jobs:
            kind, right, some = job.get()
            runs += some
            show(kind, part_of(kind, rows), right)
            tables[kind] = table_of(part_of(kind, rows), right)
            if kind == "fp32":
                for row, is_right in zip(rows, right):
                    row["correct_fp32"] = bool(is_right)
                tables["fp32_second"] = table_of(rows[::2], right[::2])
        small = small.get()
    print("sums below 100:", small["correct"], "of", small["n"], "wrong:", small["wrong"][:20])
    with gzip.GzipFile(folder / "eval.jsonl.gz", "wb", mtime=0) as file:
        file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
    (work / "table.md").write_text(markdown(tables, list(tables["fp32"])))
    del tables["fp32_second"]
    (folder / "expected.json").write_text(
        json.dumps(
            dict(
                note=NOTE,
                torch=torch.__version__,
                transformers=transformers.__version__,
                accuracy=tables,
                small_sums=small,
                greedy=runs,
            ),
            ensure_ascii=False,
        )
    )
