"""Additions and subtractions of up to three digits."""

# (digits of a, digits of b): how often training has them
DIGITS = {(1, 1): 4, (1, 2): 9, (2, 1): 9, (2, 2): 18, (1, 3): 2, (3, 1): 2, (2, 3): 3, (3, 2): 5, (3, 3): 24}
ASK = {
    "+": ["What is {a} + {b}?", "Calculate {a} + {b}.", "{a} + {b} =", "Add {a} and {b}."],
    "-": ["What is {a} - {b}?", "Calculate {a} - {b}.", "{a} - {b} =", "Subtract {b} from {a}."],
}
ASK_ELSE = {
    "+": [
        "How much is {a} + {b}?",
        "{a} + {b}",
        "{a}+{b}",
        "{a}+{b}=",
        "What is {a}+{b}?",
        "What is {a} plus {b}?",
        "What is the sum of {a} and {b}?",
        "Compute {a} + {b}.",
    ],
    "-": [
        "How much is {a} - {b}?",
        "{a} - {b}",
        "{a}-{b}",
        "{a}-{b}=",
        "What is {a}-{b}?",
        "What is {a} minus {b}?",
        "What is the difference between {a} and {b}?",
        "Compute {a} - {b}.",
    ],
}
SHEET = 11  # sums of a sheet


def drawn_number(draw, digits):
    return draw.random.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)


def operands(draw, op=None, digits=None):
    """(a, op, b) with a result of 0 or more. Pairs of one digit are so few that both sides of the split have them."""
    op = op or ("-" if draw.chance(0.55) else "+")
    while True:
        n, m = digits or draw.random.choices(list(DIGITS), DIGITS.values())[0]
        if digits and draw.chance(0.5):
            n, m = m, n
        a, b = drawn_number(draw, n), drawn_number(draw, m)
        if op == "-":
            # Uniform pairs seldom cancel in their first digits, which is the hard case, the closer the harder.
            if not draw.evaluation and n == m > 1 and draw.chance(0.4):
                b = max(0, a - draw.random.randrange(draw.random.randint(1, 10 ** (n - 1))))
            a, b = max(a, b), min(a, b)
        if n == m == 1 or draw.is_ours(f"{a}{op}{b}"):
            return a, op, b


def answer(a, op, b):
    return f"{a} {op} {b} = {a + b if op == '+' else a - b}."


def ask(draw, a, op, b):
    """Evaluation asks in the four usual ways, training in others too."""
    others = not draw.evaluation and draw.chance(0.4)
    return draw.pick((ASK_ELSE if others else ASK)[op]).format(a=a, b=b)


def question(draw, op=None, digits=None):
    a, op, b = operands(draw, op, digits)
    return ask(draw, a, op, b), answer(a, op, b)


def sheet(draw, digits=None):
    """Many sums in one row, as pieces like those of chat_template.render: only the results are learned."""
    pieces = [("<|im_start|>user\nCalculate.<|im_end|>\n<|im_start|>assistant\n", False)]
    for i in range(SHEET):
        left, result = answer(*operands(draw, digits=digits)).split("= ")
        pieces += [((" " if i else "") + left + "= ", False), (result, True)]
    return pieces
