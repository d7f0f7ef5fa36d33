"""The tokenizer: byte-level BPE of 2,048 tokens in which every digit is a token, and its folder for Hugging Face."""

import json
import re

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from chat_template import MARKS, SPECIAL, TEMPLATE, render
from conversations import SHARES, example
from draw import Draw
from grammar import ENGLISH
from model import VOCAB
from words import CITY, NAMES, POOL

EXAMPLES = 24000


def characters_as_tokens(text):
    """The length of texts before there is a tokenizer."""
    return max(1, len(text) // 4)


def texts():
    """Examples of each kind but letters of other scripts, which stay bytes; every word often enough to be a token."""
    draw, kinds = Draw("tokenizer"), [kind for kind in SHARES if kind not in ("unicode", "sheet")]
    marks = re.compile("|".join(map(re.escape, SPECIAL + MARKS)))
    yield from [ENGLISH.replace("\n", " ")] * 20
    for i in range(EXAMPLES):
        for text, _ in render(*example(draw, kinds[i % len(kinds)], 200, characters_as_tokens)):
            yield marks.sub("", text)
    yield from POOL * 60 + [" " + word for word in POOL + NAMES + CITY] * 60


def make(folder):
    """Writes tokenizer.json and tokenizer_config.json."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts(),
        trainers.BpeTrainer(
            vocab_size=VOCAB - len(MARKS),
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in MARKS])
    assert tokenizer.get_vocab_size() == VOCAB
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    added = {
        str(tokenizer.token_to_id(t)): dict(
            content=t, lstrip=False, normalized=False, rstrip=False, single_word=False, special=t in SPECIAL
        )
        for t in SPECIAL + MARKS
    }
    config = dict(
        tokenizer_class="PreTrainedTokenizerFast",
        add_bos_token=False,
        add_prefix_space=False,
        added_tokens_decoder=added,
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token=None,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
        chat_template=TEMPLATE,
    )
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
    spoken = [" " + word for word in POOL + NAMES + CITY]
    print(
        "tokens",
        VOCAB,
        "words of one token",
        sum(len(tokenizer.encode(word).ids) == 1 for word in spoken),
        "of",
        len(spoken),
    )


def load(folder):
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def counter(tokenizer):
    """A function that counts the tokens of a text."""
    return lambda text: len(tokenizer.encode(text).ids)
