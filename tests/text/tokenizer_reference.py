"""Random Unicode strings, encoded and decoded by Python's tokenizers and by Baton: all ids and texts must be equal.
Run by scripts/tokenizer_test.sh."""
import argparse
import json
import os
import random
import subprocess
import sys
import unicodedata

import tokenizers

# Ranges that tokenizers treat differently: letters with and without case, digits, marks that combine, spaces of all
# kinds, what is invisible, East Asian scripts, emoji and what joins them, private use, the last planes.
RANGES = [
    (0x20, 0x7E), (0x00, 0x1F), (0x7F, 0xFF), (0x100, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF),
    (0x900, 0xD7F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x209F),
    (0x2100, 0x214F), (0x2150, 0x218F), (0x2460, 0x24FF), (0x2580, 0x25FF), (0x3000, 0x30FF), (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0xF900, 0xFAFF), (0xFE00, 0xFE2F), (0xFF00, 0xFFFF), (0x10400, 0x1044F),
    (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF), (0xE0000, 0xE01EF), (0x100000, 0x10FFFF),
]
SPACES = [' ', '  ', '\n', '\n\n', '\r\n', '\t', '\u00a0', '\u2003', '\u3000', '\u200b', '\u200d', '\ufeff', '▁', '▁▁']


class Drawer:
    """Draws strings for one tokenizer: some have pieces of its own vocabulary and its special tokens."""

    def __init__(self, tokenizer, seed):
        self.random = random.Random(seed)
        self.tokenizer = tokenizer
        self.n_ids = tokenizer.get_vocab_size()
        self.added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]

    def character(self):
        if self.random.random() < 0.15:  # any at all, but no surrogates
            code = self.random.randrange(0x110000 - 0x800)
            return chr(code if code < 0xD800 else code + 0x800)
        return chr(self.random.randint(*self.random.choice(RANGES)))

    def piece(self):
        kind = self.random.random()
        if kind < 0.35:  # letters of one script
            low, high = self.random.choice(RANGES)
            return ''.join(chr(self.random.randint(low, high)) for _ in range(self.random.randint(1, 8)))
        if kind < 0.5:
            return self.random.choice(SPACES) * self.random.choice([1, 1, 1, 2, 5])
        if kind < 0.6:
            return str(self.random.randrange(10 ** self.random.randint(1, 12)))
        if kind < 0.75:
            return self.tokenizer.decode([self.random.randrange(self.n_ids)], skip_special_tokens=False)
        if kind < 0.82:
            return unicodedata.normalize('NFD', self.character() + self.character())
        if kind < 0.87 and self.added:
            token = self.random.choice(self.added)
            return token if self.random.random() < 0.7 else token[: self.random.randint(0, len(token))]
        return self.character()

    def string(self):
        if self.random.random() < 0.3:
            text = ''.join(self.character() for _ in range(self.random.randint(0, 60)))
        else:
            text = ''.join(self.piece() for _ in range(self.random.randint(1, 30)))
        return ''.join(c for c in text if not 0xD800 <= ord(c) < 0xE000)


def reference(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=True).ids
    return {
        'ids': ids,
        'plain': tokenizer.encode(text, add_special_tokens=False).ids,
        'decoded': tokenizer.decode(ids, skip_special_tokens=True),
        'decoded_all': tokenizer.decode(ids, skip_special_tokens=False),
    }


def compare(folder, program, n, seed):
    """Returns the numbers of strings, tokens and differences."""
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, 'tokenizer.json'))
    drawer = Drawer(tokenizer, seed)
    texts = [drawer.string() for _ in range(n)]
    lines = ''.join(json.dumps(text) + '\n' for text in texts)
    run = subprocess.run([program, folder], input=lines, stdout=subprocess.PIPE, text=True, encoding='utf-8')
    if run.returncode != 0:
        sys.exit(f'{program} {folder} ended with {run.returncode}')
    answers = run.stdout.split('\n')[:-1]
    if len(answers) != n:
        sys.exit(f'{program} {folder} answered {len(answers)} of {n} strings')
    n_tokens = n_different = 0
    for text, line in zip(texts, answers):
        expected, got = reference(tokenizer, text), json.loads(line)
        n_tokens += len(expected['plain'])
        if got == expected:
            continue
        n_different += 1
        if n_different <= 3:
            parts = [name for name in expected if got.get(name) != expected[name]]
            print(f'{folder}: {text!r}: {parts[0]} is {got.get(parts[0])!r} instead of {expected[parts[0]]!r}')
    return n, n_tokens, n_different


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--program', required=True, help='encode_lines')
    parser.add_argument('--strings', type=int, default=10_000, help='of each folder')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('folders', nargs='+', help='with a tokenizer.json')
    options = parser.parse_args()
    is_equal = True
    for folder in options.folders:
        n, n_tokens, n_different = compare(folder, options.program, options.strings, options.seed)
        name = os.path.basename(os.path.normpath(folder))
        print(f'{name}: {n} strings, {n_tokens} tokens, {n_different} differ')
        is_equal &= n_different == 0
    sys.exit(0 if is_equal else 1)


if __name__ == '__main__':
    main()
