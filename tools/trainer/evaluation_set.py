"""The evaluation prompts: contents that training never has, but for pairs of one digit and greetings.

Each category draws from its own stream, so that a change of one leaves the others as they are.
"""

import sums
from conversations import conversation, memory, question_of, retrieval, single, with_tools
from draw import Draw
from questions import spell

RETRIEVAL = {50: 30, 100: 30, 250: 50, 500: 50, 1000: 100, 1500: 40, 2000: 30}  # tokens of the text: prompts
# Category: operator, digits of the operands, prompts
SUMS = dict(
    add_1digit=("+", (1, 1), 20),
    add_1and2digit=("+", (1, 2), 60),
    add_2digit=("+", (2, 2), 40),
    add_3digit=("+", (3, 3), 40),
    sub_1and2digit=("-", (1, 2), 40),
    sub_2digit=("-", (2, 2), 40),
    sub_3digit=("-", (3, 3), 40),
)
SINGLE = dict(copy=40, unicode=20, reverse=30, count=30, fact=40, unknown=20, json=30, story=20, chat=10)
SPELL = dict(spell_known_word=True, spell_new_word=False)
TOOLS = dict(call=30, answer=20, plain=10)


def prompts(count_tokens):
    """Yields (category, messages, tools); the last message is the expected answer."""

    def stream(category):
        return Draw(f"evaluation {category}", evaluation=True)

    for length, n in RETRIEVAL.items():
        draw = stream(f"retrieval_{length}")
        for _ in range(n):
            yield f"retrieval_{length}", retrieval(draw, length, count_tokens), None
    for category, (op, digits, n) in SUMS.items():
        draw = stream(category)
        for _ in range(n):
            yield category, conversation([sums.question(draw, op, digits)]), None
    for category, n in SINGLE.items():
        draw = stream(category)
        for _ in range(n):
            yield category, single(draw, category), None
    for category, known in SPELL.items():
        draw = stream(category)
        for _ in range(20):
            yield category, conversation([draw.fresh(lambda: spell(draw, known))]), None
    draw = stream("memory")
    for _ in range(40):
        yield "memory", memory(draw), None
    for kind, n in TOOLS.items():
        draw = stream(f"tool_{kind}")
        for _ in range(n):
            yield f"tool_{kind}", *with_tools(draw, kind)


def all_small_sums():
    """Every sum of two numbers below 100 as (messages, answer's text), asked in one of the four usual ways."""
    draw = Draw("all small sums", evaluation=True)
    for a in range(100):
        for b in range(100):
            yield conversation([(sums.ask(draw, a, "+", b), sums.answer(a, "+", b))])
