"""JSON schemas drawn from a seed, whose values are bounded in length."""

import random

_PATTERNS = ["^[a-z]{1,6}$", "^(ab|c)+d{0,3}$", "^[A-Z][0-9]{2}-x$", r"^\w{2,4}\.$",
             "^a[b-y.-]{0,4}z$", "^(red|green) [0-9]{1,3}$"]


class SchemaMaker:
    def __init__(self, seed):
        self._random = random.Random(seed)
        self._refers = False  # definitions do not, or a value could have no end

    def root(self):
        definitions = {"leaf": self._leaf(), "pair": self._object(1)}
        self._refers = True
        return {**self._object(3), "$defs": definitions}

    def _below(self, n):
        return self._random.randrange(n)

    def _any(self, depth):
        kind = self._below(10 if depth > 0 else 5)
        if kind < 5:
            return self._leaf()
        if kind < 7:
            return self._object(depth - 1)
        if kind < 9:
            return self._array(depth - 1)
        if self._refers and self._below(2) == 0:
            return {"$ref": "#/$defs/" + self._random.choice(["leaf", "pair"])}
        return {"anyOf": [self._leaf(), self._any(depth - 1)]}

    def _leaf(self):
        low = self._below(2000) - 1000
        size = self._below(4)
        return self._random.choice([
            {"type": "boolean"},
            {"type": ["null", "boolean"]},
            {"type": "integer", "minimum": low, "maximum": low + self._below(300)},
            {"type": "integer", "exclusiveMinimum": low / 8, "maximum": low / 8 + 30,
             "multipleOf": 1 + self._below(7)},
            {"enum": ["red", "green", 7, None, "a \"b\" \\ /", 2.5]},
            {"const": {"k": [1, "two", False]}},
            {"type": "string", "pattern": self._random.choice(_PATTERNS), "maxLength": 12},
            {"type": "string", "format": self._random.choice(["date", "ipv4", "uuid"])},
            {"oneOf": [{"const": "x"}, {"type": "boolean"}]},
            {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 3 + self._below(40)}]},
            {"type": "string", "minLength": size, "maxLength": size + self._below(12)},
        ])

    def _object(self, depth):
        names = ["field0", "field1", "a \"b\" é", "日本"][:1 + self._below(4)]
        return {"type": "object", "properties": {name: self._any(depth) for name in names},
                "required": [name for name in names if self._below(2) == 0],
                "additionalProperties": False}

    def _array(self, depth):
        low = self._below(3)
        schema = {"type": "array", "minItems": low, "maxItems": low + self._below(3),
                  "items": self._any(depth)}
        if self._below(4) == 0:
            schema["prefixItems"] = [self._leaf()]
        return schema
