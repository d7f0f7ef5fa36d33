"""Tells whether a story follows its grammar."""

import re

from grammar import STORY

FIXED = ("animal", "friend", "N", "M", "place", "obj", "adj2")  # holes that keep their word through a story


def pattern_of(sentence, known):
    """A regular expression of a sentence of the grammar; known: the words of the fixed holes so far."""
    pattern, seen = "", set()
    for i, part in enumerate(re.split(r"\{(\w+)\}", sentence)):
        if i % 2 == 0:
            pattern += re.sub(r"\b([Aa])\\ $", r"\1n?\\ ", re.escape(part))
        elif part in known:
            pattern += re.escape(known[part])
        elif part not in FIXED:
            pattern += r"\w+"
        else:
            pattern += f"(?P={part})" if part in seen else rf"(?P<{part}>\w+)"
        seen.add(part)
    return re.compile(pattern)


def story_is_right(question, answer):
    """Whether it follows the grammar from its first to its last sentence with each name and thing used consistently."""
    if not 60 <= len(answer.split()) <= 130:
        return False
    known, at = {}, 0
    for row in STORY:
        for sentence in row.split("|"):
            match = pattern_of(sentence, known).match(answer, at)
            if match:
                known.update(match.groupdict())
                at = match.end() + 1
                break
    return at >= len(answer) and known.get("animal", "?") in question and known.get("place", "?") in question
