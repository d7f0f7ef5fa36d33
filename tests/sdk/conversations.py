"""What the tests talk about: messages, tools and schemas. The texts of the small model are
arbitrary; what holds them in a form is a grammar, and temperature 0 repeats them."""

MODEL = "baton-demo"
ALIAS = "baton-demo-alias"
DUCK = [{"role": "user", "content": "Tell me about a duck."}]

# Compact JSON: the small model would fill the answer with white space.
PERSON_SCHEMA = {
    "x-guidance": {"whitespace_flexible": False},
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "minItems": 1,
                 "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
WEATHER_SCHEMA = {
    "x-guidance": {"whitespace_flexible": False},
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
JSON_SCHEMA_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "person", "strict": True, "schema": PERSON_SCHEMA},
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "The weather of a city",
                                      "parameters": WEATHER_SCHEMA}},
    {"type": "function", "function": {"name": "record", "parameters": PERSON_SCHEMA}},
]
ANTHROPIC_TOOLS = [
    {"name": "weather", "description": "The weather of a city", "input_schema": WEATHER_SCHEMA},
    {"name": "record", "input_schema": PERSON_SCHEMA},
]
NAMED_WEATHER = {"type": "function", "function": {"name": "weather"}}
