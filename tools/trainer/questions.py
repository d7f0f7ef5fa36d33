"""Questions that one message asks and one message answers: (question, answer)."""

import json

import words as w
from grammar import CHAT, DESCRIBE, FACTS, FILLER, KNOWN, STORY, STORY_ASK

REPEAT = ["Repeat exactly: ", "Repeat after me: ", "Copy this sentence: ", "Say this again: "]


def sentence(draw):
    if draw.chance(0.6):
        return draw.fill(draw.pick(FILLER))
    return draw.fill(draw.pick(FACTS)[0], N=draw.name(), C=draw.pick(w.CITY), P=draw.pick(w.PLACE), A=draw.pick(w.ADJ))


def copy(draw):
    """Training has more made-up words, because they are harder."""
    x, between = draw.random.random(), draw.random.randint
    if x < (0.45 if draw.evaluation else 0.35):
        text = sentence(draw)
    elif x < (0.65 if draw.evaluation else 0.5):
        text = " ".join(draw.pick(w.POOL) for _ in range(between(3, 12)))
    elif x < 0.85:
        text = " ".join(draw.made_up() for _ in range(between(2, 6)))
    else:
        text = " ".join(draw.number(between(1, 5)) for _ in range(between(1, 5)))
    return draw.pick(REPEAT) + text, text


def unicode(draw):
    """Repeats letters of other scripts, which are several tokens each."""
    parts = []
    for _ in range(draw.random.randint(1, 4)):
        letters = draw.pick(w.UNI).split() + (list("aeioln") if draw.chance(0.4) else [])
        parts.append("".join(draw.pick(letters) for _ in range(draw.random.randint(1, 5))))
    text = " ".join(parts)
    return draw.pick(REPEAT) + text, text


def spell(draw, known=None):
    """`known`: a word of the lists, or one that was made up; training has more of these, because they are harder."""
    known = draw.chance(0.35) if known is None else known
    word = draw.pick(w.POOL) if known else draw.made_up()
    ask = draw.pick(["Spell the word {}.", "Spell {}.", "How do you spell {}?", "Please spell {}."])
    return ask.format(word), "-".join(word)


def reverse(draw):
    items = draw.sample(w.POOL if draw.chance(0.8) else w.NAMES, draw.random.randint(2, 6))
    ask = draw.pick(["List in reverse order: ", "Reverse this list: ", "Say these words backwards: "])
    return ask + ", ".join(items), ", ".join(reversed(items))


def count(draw):
    n = draw.random.randint(1, 12)
    ask = draw.pick(["How many words are here: ", "Count the words: ", "How many words are in this list: "])
    return ask + " ".join(draw.sample(w.POOL, n)), f"{n} word{'s' if n > 1 else ''}."


def fact(draw):
    asks, key, answer = draw.pick(KNOWN)
    return draw.one_of(asks).format(k=key), answer


def unknown(draw):
    """What the model cannot know: it says so."""
    x, word, city = draw.random.random(), draw.made_up(), draw.pick(w.CITY)
    if x < 0.35:
        return (
            draw.one_of(KNOWN[0][0]).format(k=word.capitalize()),
            f"Sorry, I do not know the capital of {word.capitalize()}.",
        )
    if x < 0.6:
        return (
            draw.pick(["What is a {}?", "What does {} mean?", "Tell me about {}."]).format(word),
            f"Sorry, I do not know {word}.",
        )
    if x < 0.8:
        return (
            draw.pick(["What is the weather in {}?", "How is the weather in {}?"]).format(city),
            f"Sorry, I do not know the weather in {city}.",
        )
    return (
        draw.pick(["What time is it in {}?", "Tell me the time in {}."]).format(city),
        f"Sorry, I do not know the time in {city}.",
    )


def chat(draw):
    asks, answer = draw.pick(CHAT)
    return draw.one_of(asks), answer


def story(draw):
    animal, friend, animal2 = draw.sample(w.ANIMAL, 3)
    name, name2 = draw.sample(w.NAMES, 2)
    values = dict(
        animal=animal,
        friend=friend,
        animal2=animal2,
        N=name,
        M=name2,
        place=draw.pick(w.PLACE),
        obj=draw.pick(w.STORY_OBJ),
        adj2=draw.pick(w.COLOUR + ["shiny", "bright"]),
    )
    if not draw.evaluation and draw.chance(0.2):
        ask = draw.pick(["Describe a {place}.", "Describe the {place}.", "What does a {place} look like?"])
        return draw.fill(ask, **values), " ".join(draw.fill(draw.one_of(row), **values) for row in DESCRIBE)
    rows = [row for i, row in enumerate(STORY) if i in (0, 2, 4, 5, 9) or draw.chance(0.85)]
    return draw.fill(draw.one_of(STORY_ASK), **values), " ".join(draw.fill(draw.one_of(row), **values) for row in rows)


def json_object(draw):
    values = dict(
        name=draw.name(), age=int(draw.number(2)), city=draw.pick(w.CITY), job=draw.pick(w.JOB), food=draw.pick(w.FOOD)
    )
    said = dict(
        age="{name} is {age} years old.",
        city="{name} lives in {city}.",
        job="{name} works as a {job}.",
        food="{name} likes {food}.",
    )
    rest = draw.sample(list(said), draw.random.randint(1, 3))
    fields = draw.sample(["name"] + rest, len(rest) + 1)
    ask = draw.pick(
        [
            "Reply as JSON with the fields {}: ",
            "Answer as JSON with the fields {}: ",
            "Make a JSON object with the fields {}: ",
        ]
    )
    return (
        ask.format(", ".join(fields[:-1]) + " and " + fields[-1]) + " ".join(said[k] for k in rest).format(**values),
        json.dumps({k: values[k] for k in fields}),
    )


QUESTIONS = dict(
    copy=copy,
    unicode=unicode,
    spell=spell,
    reverse=reverse,
    count=count,
    fact=fact,
    unknown=unknown,
    chat=chat,
    story=story,
    json=json_object,
)
