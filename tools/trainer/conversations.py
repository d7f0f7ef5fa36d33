"""Whole conversations: lists of messages, with tools or without, and how often training has each kind."""

import collections
import json
import math

import sums
import words as w
from grammar import BOX, FACTS, FILLER, TOOLS
from questions import QUESTIONS

# Shares of the training tokens by kind.
SHARES = dict(
    retrieval=0.37,
    copy=0.09,
    unicode=0.03,
    spell=0.065,
    reverse=0.02,
    count=0.015,
    sum=0.09,
    sheet=0.19,
    fact=0.015,
    unknown=0.015,
    chat=0.005,
    story=0.03,
    memory=0.04,
    json=0.025,
    tool=0.05,
)
MAX_QUESTIONS = dict(story=1, json=2, sum=8, long_sum=8)  # of one conversation of a kind; others: 5


def conversation(turns, system=None):
    messages = [dict(role="system", content=system)] if system else []
    for question, answer in turns:
        messages += [dict(role="user", content=question), dict(role="assistant", content=answer)]
    return messages


def system_prompt(draw):
    return (
        draw.pick(["You are a helpful assistant.", "You are a friendly assistant.", "Answer in short."])
        if draw.chance(0.2)
        else None
    )


def question_of(draw, kind):
    if kind == "long_sum":
        return sums.question(draw, digits=(3, 3))
    if kind == "sum":
        return sums.question(draw)  # the split is by its operands
    if kind == "chat":
        return QUESTIONS[kind](draw)  # too few to be split
    return draw.fresh(lambda: QUESTIONS[kind](draw))


def single(draw, kind, n=1):
    """n questions of one kind."""
    return conversation([question_of(draw, kind) for _ in range(n)], system_prompt(draw))


def retrieval(draw, length, count_tokens, questions=1):
    """A text of about `length` tokens with facts between filler, then questions about facts in it."""
    while True:
        kinds, share = draw.sample(FACTS, draw.random.randint(2, len(FACTS))), draw.random.uniform(0.25, 0.9)
        # Boxes are the hardest: their key is an adjective, which occurs everywhere.
        if not draw.evaluation and draw.chance(0.4):
            kinds += [BOX] * 3
        used, lines, asks, n = set(), [], [], 0
        while n < length - 30 or not asks:
            line = None
            if draw.chance(share):
                statement, ask = draw.pick(kinds)
                keys = dict(N=draw.name(), C=draw.pick(w.CITY), P=draw.pick(w.PLACE), A=draw.pick(w.ADJ))
                key = (statement, statement.format_map(collections.defaultdict(str, keys)))
                if key not in used:
                    used.add(key)
                    line = draw.fill(statement, **keys)
                    asks.append((draw.fill(draw.one_of(ask), **keys), line))
            line = line or draw.fill(draw.pick(FILLER))
            lines.append(line)
            n += count_tokens(" " + line)
        text = " ".join(lines)
        if draw.is_ours(text):
            break
    asks = draw.sample(asks, min(questions, len(asks)))
    if draw.chance(0.15):
        return conversation(asks, text)
    first = draw.pick(["{t}\n\n{q}", "Read this text. {t}\n\n{q}", "{t}\n{q}", "Text: {t}\n\nQuestion: {q}"]).format(
        t=text, q=asks[0][0]
    )
    return conversation([(first, asks[0][1])] + asks[1:])


# Rows of (how a user tells a fact, the reply, the later question, the answer).
TOLD = [
    (
        "My name is {n}.|I am {n}.|Hi, my name is {n}.",
        "Nice to meet you, {n}!",
        "What is my name?|Do you remember my name?",
        "Your name is {n}.",
    ),
    (
        "I live in {c}.|My home is in {c}.",
        "I see, you live in {c}.",
        "Where do I live?|In which city do I live?",
        "You live in {c}.",
    ),
    (
        "My number is {d}.|Remember the number {d}.",
        "I will remember the number {d}.",
        "What is my number?|Which number did I tell you?",
        "Your number is {d}.",
    ),
    (
        "My favourite colour is {a}.|I like the colour {a} best.",
        "The colour {a} is nice.",
        "What is my favourite colour?",
        "Your favourite colour is {a}.",
    ),
    ("I have a {o}.|I own a {o}.", "It must be fun to have a {o}.", "Which animal do I have?", "You have a {o}."),
    ("I work as a {j}.|My job is {j}.", "I see, you are a {j}.", "What is my job?", "You are a {j}."),
]


def memory(draw):
    """The user tells things, talks about something else, and asks for them later: up to six turns."""
    values = dict(
        n=draw.name(),
        c=draw.pick(w.CITY),
        d=draw.number(draw.random.randint(2, 4)),
        a=draw.pick(w.COLOUR),
        o=draw.pick(w.ANIMAL),
        j=draw.pick(w.JOB),
    )
    told = draw.sample(TOLD, draw.random.randint(1, 3))

    def turn(row, at):
        return draw.fill(draw.one_of(row[at]), **values), draw.fill(row[at + 1], **values)

    start, later = [turn(row, 0) for row in told], [turn(row, 2) for row in told]
    between = [
        question_of(draw, draw.pick(["fact", "copy", "reverse"]) if draw.chance(0.6) else "sum")
        for _ in range(draw.random.randint(0, 5 - len(told)))
    ]
    if draw.chance(0.3) and len(start) > 1:  # two things told in one message
        start[:2] = [(start[0][0] + " " + start[1][0], start[0][1] + " " + start[1][1])]
    return conversation(start + between + (later[:1] if draw.evaluation else later), system_prompt(draw))


def described_tool(name):
    about, argument, kind = TOOLS[name]
    return dict(
        type="function",
        function=dict(
            name=name,
            description=about,
            parameters=dict(type="object", properties={argument: dict(type=kind)}, required=[argument]),
        ),
    )


def tool_use(draw, name):
    """(question, arguments, the tool's response, answer)"""
    city = draw.pick(w.CITY)
    if name == "get_weather":
        degrees, sky = draw.random.randint(1, 35), draw.pick(["sunny", "cloudy", "rainy", "windy", "foggy"])
        ask = draw.pick(["What is the weather in {}?", "How is the weather in {}?", "Tell me the weather in {}."])
        return (
            ask.format(city),
            dict(city=city),
            dict(degrees=degrees, sky=sky),
            f"It is {degrees} degrees and {sky} in {city}.",
        )
    if name == "get_time":
        time = draw.fill("{hm}")
        return (
            draw.pick(["What time is it in {}?", "Tell me the time in {}."]).format(city),
            dict(city=city),
            dict(time=time),
            f"It is {time} in {city}.",
        )
    if name == "calculator":
        x, y, op = draw.random.randint(2, 999), draw.random.randint(2, 99), draw.pick("+-*")
        expression, result = f"{x} {op} {y}", {"+": x + y, "-": x - y, "*": x * y}[op]
        return (
            draw.pick(["What is {}?", "Calculate {}."]).format(expression),
            dict(expression=expression),
            dict(result=result),
            f"{expression} = {result}.",
        )
    minutes = draw.random.randint(1, 90)
    return (
        draw.pick(["Set a timer for {} minutes.", "Please set a timer for {} minutes."]).format(minutes),
        dict(minutes=minutes),
        dict(ok=True),
        f"The timer is set for {minutes} minutes.",
    )


def tool_turn(draw, names, kind):
    """Messages of one turn: a call, a call with response and answer, or (plain) an answer where no tool is needed."""
    if kind == "plain":
        return conversation([question_of(draw, "fact" if draw.chance(0.7) else "chat")])
    while True:
        name = draw.pick(names)
        question, arguments, response, answer = tool_use(draw, name)
        if draw.is_ours(question + str(response)):
            break
    call = dict(
        role="assistant", content="", tool_calls=[dict(type="function", function=dict(name=name, arguments=arguments))]
    )
    messages = [dict(role="user", content=question), call]
    if kind == "answer":
        messages += [dict(role="tool", content=json.dumps(response)), dict(role="assistant", content=answer)]
    return messages


def with_tools(draw, kind=None):
    """(messages, tools): one turn of a kind in evaluation; in training up to three turns, the last maybe a call."""
    names = draw.sample(list(TOOLS), draw.random.randint(1, 4))
    messages = []
    for _ in range(0 if kind else draw.random.randint(0, 2)):
        messages += tool_turn(draw, names, "answer" if draw.chance(0.7) else "plain")
    messages += tool_turn(draw, names, kind or draw.random.choices(["call", "answer", "plain"], [5, 3, 2])[0])
    return messages, [described_tool(name) for name in names]


def example(draw, kind, max_text, count_tokens):
    """(messages, tools) of a kind for training; max_text: tokens of the longest text with facts."""
    if kind == "retrieval":
        length = math.exp(draw.random.uniform(math.log(40), math.log(max_text)))
        return retrieval(draw, length, count_tokens, 3 + int(length / 45)), None
    if kind == "memory":
        return memory(draw), None
    if kind == "tool":
        return with_tools(draw)
    if kind == "tool_plain":
        return with_tools(draw, "plain")
    return single(draw, kind, draw.random.randint(1, MAX_QUESTIONS.get(kind, 5))), None
