"""Random draws for the corpus: words, made-up words, filled patterns, and the split between training and evaluation."""

import random
import re
import zlib

import words as w

POOLS = dict(
    place=w.PLACE,
    adj=w.ADJ,
    obj=w.OBJ,
    time=w.TIME,
    verb=w.VERB,
    animal=w.ANIMAL,
    mood=w.MOOD,
    food=w.FOOD,
    job=w.JOB,
    city=w.CITY,
    things=w.THINGS,
)


def is_held(content):
    """Whether this content is for evaluation only: one of eight, by its CRC."""
    return zlib.crc32(content.encode()) % 8 == 0


class Draw:
    """A stream of random draws. `evaluation`: its contents are those that training never has."""

    def __init__(self, seed, evaluation=False):
        self.random, self.evaluation = random.Random(seed), evaluation
        self.pick, self.sample = self.random.choice, self.random.sample

    def chance(self, p):
        return self.random.random() < p

    def one_of(self, alternatives):
        return self.pick(alternatives.split("|"))

    def is_ours(self, content):
        return is_held(content) == self.evaluation

    def fresh(self, make):
        """The first question and answer of make() whose question belongs to this side of the split."""
        while True:
            question, answer = make()
            if self.is_ours(question):
                return question, answer

    def made_up(self, syllables=None):
        return "".join(self.pick(w.SYL) for _ in range(syllables or self.random.randint(2, 4)))

    def name(self):
        """A name. Training meets made-up ones more often, because they are harder to tell apart."""
        return self.made_up().capitalize() if self.chance(0.15 if self.evaluation else 0.3) else self.pick(w.NAMES)

    def number(self, digits):
        return str(self.random.randrange(10 ** (digits - 1), 10**digits))

    def fill(self, pattern, **values):
        """Fills the holes of a pattern: given values first, then words, times (hm) and numbers (d2: two digits)."""

        def filled(match):
            hole = match.group(1)
            if hole in values:
                return values[hole]
            if hole in POOLS:
                return self.pick(POOLS[hole])
            if hole == "hm":
                return f"{self.random.randrange(24)}:{self.random.randrange(60):02d}"
            return self.number(int(hole[1]))

        return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", re.sub(r"\{(\w+)\}", filled, pattern))
