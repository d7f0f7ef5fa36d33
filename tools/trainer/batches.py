"""Batches of training: rows of similar length, about TOKENS tokens each."""

import collections

import torch

import sums
from chat_template import render
from conversations import example
from draw import Draw

TOKENS = 2048  # of a batch; a larger one does not compute faster
POOL = 80  # batches that are drawn, sorted by length and shuffled together
MAX_ROW = 2400


def pieces_of(draw, kind, max_text, count_tokens):
    if kind == "sheet":
        return sums.sheet(draw)
    if kind == "long_sheet":
        return sums.sheet(draw, (3, 3))
    return render(*example(draw, kind, max_text, count_tokens), compact=draw.chance(0.25))


def drawn_rows(draw, shares, max_text, tokenizer, count_tokens):
    """Rows (ids, which of them the assistant wrote), each kind with its share of the tokens."""
    spent, rows = collections.Counter(), []
    while sum(spent.values()) < POOL * TOKENS:
        kind = min(shares, key=lambda k: (spent[k] + draw.random.random() * 100) / shares[k])
        pieces = pieces_of(draw, kind, max_text, count_tokens)
        ids, own = [], []
        for (_, is_own), encoded in zip(pieces, tokenizer.encode_batch([text for text, _ in pieces])):
            ids += encoded.ids
            own += [is_own] * len(encoded.ids)
        rows.append((ids[:MAX_ROW], own[:MAX_ROW]))
        spent[kind] += len(rows[-1][0])
    return rows


def batch_of(rows, length):
    """(ids, flat positions whose next token is the assistant's, these next tokens)"""
    ids, own = torch.zeros(len(rows), length, dtype=torch.long), torch.zeros(len(rows), length, dtype=torch.bool)
    for i, (tokens, is_own) in enumerate(rows):
        ids[i, : len(tokens)], own[i, : len(tokens)] = torch.tensor(tokens), torch.tensor(is_own)
    where = own.flatten().roll(-1).nonzero().squeeze(1)  # no row begins with the assistant, so nothing wraps around
    return ids, where, ids.flatten()[where + 1]


def pool(seed, shares, max_text, tokenizer, count_tokens):
    """About POOL batches in random order; a function of its arguments."""
    draw, batches = Draw(seed), []
    rows = sorted(drawn_rows(draw, shares, max_text, tokenizer, count_tokens), key=lambda row: len(row[0]))
    while rows:
        length = -(-len(rows[-1][0]) // 16) * 16
        n = max(1, TOKENS // length)
        batches.append(batch_of(rows[-n:], length))
        del rows[-n:]
    draw.random.shuffle(batches)
    return batches
