#!/usr/bin/env python3
"""Plots of docs/PAPER.md from the JSON line of `baton bench relay`.

  baton bench relay --simulate --json | tail -1 > relay.json
  scripts/plot_relay.py relay.json docs/plots

Needs matplotlib (Debian: python3-matplotlib); nothing of the build does.
"""
import json
import os
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

# Scheme of the JSON, name in the legend, line style; in this order.
SCHEMES = [("tsp", "TSP", ":"), ("ring", "ring", ":"), ("pipeline", "pipeline", ":"), ("kvr-e", "KVR-E", "--"),
           ("kvr-s", "KVR-S", "--"), ("kvr-p", "KVR-P", "-."), ("streaming", "relay", "-")]


def groups(results):
    """Results by (source, shape, ranks, link), each {scheme: [result, ...]}."""
    found = {}
    for result in results:
        key = (result["source"], result["shape"], result["ranks"], result["bytes_per_second"])
        found.setdefault(key, {}).setdefault(result["scheme"], []).append(result)
    return found


def link_text(bytes_per_second):
    return f"{bytes_per_second / 1e9:g} GB/s" if bytes_per_second > 0 else "loopback"


def times(all_groups, source, shape, ranks, links, path):
    """Time to the first token as a share of one worker's, over the prompt's length, a panel per link."""
    figure, axes = plt.subplots(1, len(links), figsize=(4 * len(links), 3.4), sharey=True, squeeze=False)
    for axis, link in zip(axes[0], links):
        group = all_groups[source, shape, ranks, link]
        one = {result["tokens"]: result["seconds"] for result in group["one"]}
        for scheme, name, style in SCHEMES:
            points = sorted((r["tokens"], r["seconds"] / one[r["tokens"]]) for r in group.get(scheme, []))
            if points:
                axis.plot([x for x, _ in points], [y for _, y in points], style, marker=".", label=name)
        axis.axhline(1 / ranks, color="grey", linewidth=0.6)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.set_xlabel("prompt tokens")
        axis.set_title(f"links of {link_text(link)}", fontsize=9)
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("TTFT / one worker's")
    axes[0][-1].legend(fontsize=7)
    figure.suptitle(f"{source}: {shape}, {ranks} workers", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=64)
    plt.close(figure)


def partitions(all_groups, source, shape, ranks, links, path):
    """Boundaries of the slices as shares of the prompt, found by search and by the closed form."""
    figure, axes = plt.subplots(1, len(links), figsize=(4 * len(links), 3.4), sharey=True, squeeze=False)
    for axis, link in zip(axes[0], links):
        for scheme, name, style in [("searched", "searched", "-"), ("streaming", "closed form", "--")]:
            results = sorted(all_groups[source, shape, ranks, link][scheme], key=lambda r: r["tokens"])
            for i in range(ranks - 1):
                shares = [sum(r["slices"][: i + 1]) / r["tokens"] for r in results]
                axis.plot([r["tokens"] for r in results], shares, style, color=f"C{i}", marker=".",
                          label=name if i == 0 else None)
        axis.set_xscale("log", base=2)
        axis.set_ylim(0, 1)
        axis.set_xlabel("prompt tokens")
        axis.set_title(f"links of {link_text(link)}", fontsize=9)
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("slice boundaries, share of the prompt")
    axes[0][-1].legend(fontsize=7)
    figure.suptitle(f"{source}: partitions, {shape}, {ranks} workers", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=64)
    plt.close(figure)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        found = groups(json.loads(file.read().splitlines()[-1])["results"])
    os.makedirs(sys.argv[2], exist_ok=True)
    kinds = {}
    for source, shape, ranks, link in found:
        kinds.setdefault((source, shape, ranks), set()).add(link)
    for (source, shape, ranks), links in sorted(kinds.items()):
        chosen = [x for x in (300e9, 25e9, 10e9, 1e9) if x in links] or sorted(links)
        name = f"{source}-{shape.split(',')[0]}-{ranks}.png"
        if "one" not in found[source, shape, ranks, chosen[0]]:
            continue
        times(found, source, shape, ranks, chosen, os.path.join(sys.argv[2], "ttft-" + name))
        if all("searched" in found[source, shape, ranks, link] for link in chosen):
            partitions(found, source, shape, ranks, chosen, os.path.join(sys.argv[2], "slices-" + name))


if __name__ == "__main__":
    main()
