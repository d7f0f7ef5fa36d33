"""/openapi.json as a judge of requests, answers and events."""

import copy
import re

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012


def _closed(schema):
    """A copy whose objects may have no members but those that are described."""
    schema = copy.deepcopy(schema)

    def close(part):
        if isinstance(part, dict):
            if isinstance(part.get("properties"), dict):
                part.setdefault("additionalProperties", False)
            for inner in part.values():
                close(inner)
        elif isinstance(part, list):
            for inner in part:
                close(inner)

    close(schema)
    return schema


def _pointer(*parts):
    return "#/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in parts)


class ApiDescription:
    def __init__(self, document):
        self._document = document
        self._registry = Registry().with_resources([
            ("urn:requests", Resource(contents=document, specification=DRAFT202012)),
            # Clients may send what nobody knows; an answer's members are all described.
            ("urn:answers", Resource(contents=_closed(document), specification=DRAFT202012)),
        ])

    def check_request(self, method, path, body):
        self._check("urn:requests", body, *self._operation(method, path), "requestBody",
                    "content", "application/json", "schema")

    def check_answer(self, method, path, status, media_type, body):
        """`body` is the JSON value of a body, or of an event if media_type is that of events."""
        operation = self._operation(method, path)
        if status >= 400:
            if operation is None:  # the path or its method is unknown
                name = "AnthropicError" if path.startswith("/v1/messages") else "Error"
                self._check("urn:answers", body, "components", "schemas", name)
                return
            if media_type == "text/event-stream":
                media_type = "application/json"
        assert operation is not None, f"{method} {path} is not described"
        self._check("urn:answers", body, *operation, "responses",
                    "200" if status == 200 else "default", "content", media_type, "schema")

    def _operation(self, method, path):
        for described in self._document["paths"]:
            pattern = re.sub(r"\\\{[a-z]+\\\}", "[^/]+", re.escape(described))
            if re.fullmatch(pattern, path):
                if method.lower() in self._document["paths"][described]:
                    return "paths", described, method.lower()
        return None

    def _check(self, document, value, *path):
        validator = Draft202012Validator({"$ref": document + _pointer(*path)},
                                         registry=self._registry)
        problems = [f"{problem.json_path}: {problem.message}"
                    for problem in validator.iter_errors(value)]
        assert not problems, "not as /openapi.json has it:\n" + "\n".join(problems)
