"""The OpenAPI document is complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from rtagent.telemetry.figures.declaration import entries
from rtagent.telemetry.figures.document import Stats
from service.app import create_app
from service.http.problems import MEDIA_TYPE
from service.http.settings import Settings
from service.routes.openapi import TAGS
from tests.service.conftest import TOKEN, FakeBackend

DOCUMENT: dict[str, Any] = create_app(FakeBackend(), Settings(TOKEN)).openapi()
METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}
CALLS = [
    (f"{method.upper()} {path}", call)
    for path, item in DOCUMENT["paths"].items()
    for method, call in item.items()
    if method in METHODS
]
calls = pytest.mark.parametrize(
    ("name", "call"), [pytest.param(*each, id=each[0]) for each in CALLS]
)
OPEN = {"GET /livez", "GET /readyz"}


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that a reference leads to."""
    while "$ref" in schema:
        found: Any = DOCUMENT
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The schema or its alternatives, without null."""
    schema = resolved(schema)
    parts = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    found = [inner for part in parts for inner in alternatives(part)] or [schema]
    return [each for each in found if each.get("type") != "null"]


def properties(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property below a schema, with its dotted path."""
    for each in alternatives(schema):
        for name, inner in each.get("properties", {}).items():
            yield f"{path}.{name}", inner
            yield from properties(inner, f"{path}.{name}")
        for inner in (each.get("items"), each.get("additionalProperties")):
            if isinstance(inner, dict):
                yield from properties(inner, f"{path}[]")


def described(schema: dict[str, Any]) -> bool:
    return bool(schema.get("description") or resolved(schema).get("description"))


def bounded(schema: dict[str, Any]) -> bool:
    """Whether the schema limits every value."""
    for each in alternatives(schema):
        kind = each.get("type")
        if "enum" in each or "const" in each or kind == "boolean":
            continue
        if kind in ("integer", "number"):
            low = "minimum" in each or "exclusiveMinimum" in each
            if not low or not ("maximum" in each or "exclusiveMaximum" in each):
                return False
        elif kind == "string":
            if "pattern" not in each and "maxLength" not in each:
                return False
        elif kind == "array":
            if "maxItems" not in each or not bounded(each["items"]):
                return False
        elif kind != "object":
            return False
    return True


def has_example(schema: dict[str, Any]) -> bool:
    return any(each.get("examples") or "example" in each for each in (schema, resolved(schema)))


def bodies(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for content in call.get("requestBody", {}).get("content", {}).values():
        yield content["schema"]


@calls
def test_a_call_says_what_it_does_and_how_it_fails(name: str, call: dict[str, Any]) -> None:
    assert call.get("summary")
    assert call.get("description")
    assert call.get("tags")
    assert set(call["tags"]) <= set(TAGS)
    answers = call["responses"]
    for status, answer in answers.items():
        assert answer["description"], status
        if status == "default" or int(status) >= 400:
            assert set(answer["content"]) == {MEDIA_TYPE}, status
            problem = answer["content"][MEDIA_TYPE]["schema"]
            assert problem == {"$ref": "#/components/schemas/Problem"}, status
    assert "default" in answers
    if name not in OPEN:
        assert {"401", "403", "421", "500"} <= set(answers)
    if call.get("parameters") or call.get("requestBody"):
        assert "422" in answers
    if call.get("requestBody"):
        assert {"400", "409", "413", "415", "503", "504"} <= set(answers)


@calls
def test_every_parameter_is_described_bounded_and_shown(name: str, call: dict[str, Any]) -> None:
    for parameter in call.get("parameters", ()):
        schema = parameter["schema"]
        assert parameter.get("description") or described(schema), parameter["name"]
        assert bounded(schema), parameter["name"]
        assert has_example(schema) or has_example(parameter), parameter["name"]


@calls
def test_every_field_of_a_request_is_described_bounded_and_shown(
    name: str, call: dict[str, Any]
) -> None:
    for schema in bodies(call):
        for each in alternatives(schema):
            assert described(each)
            assert each.get("additionalProperties") is False
        for path, field in properties(schema, name):
            assert described(field), path
            assert bounded(field), path
            assert has_example(field), path


@calls
def test_every_field_of_an_answer_is_described_and_shown(name: str, call: dict[str, Any]) -> None:
    for status, answer in call["responses"].items():
        for content in answer.get("content", {}).values():
            schema = content["schema"]
            assert schema, status
            assert described(schema), status
            for path, field in properties(schema, f"{name} {status}"):
                assert described(field), path
                # The parts of a list or an object have examples of their own.
                if not set(field) & {"$ref", "properties", "items", "anyOf", "oneOf", "allOf"}:
                    assert has_example(field), path
        for header in answer.get("headers", {}).values():
            assert header["description"]
            assert "example" in header


def test_the_example_of_the_figures_is_whole() -> None:
    figures = DOCUMENT["components"]["schemas"]["Stats"]["examples"][0]
    for entry in entries(Stats):
        assert entry.value(figures) is not None, entry.path


def test_objects_are_told_in_full() -> None:
    """No answer is an object without fields, except where the configuration is free."""
    vague = {
        path
        for name, call in CALLS
        for status, answer in call["responses"].items()
        for content in answer.get("content", {}).values()
        for path, field in properties(content["schema"], name)
        for each in alternatives(field)
        if each.get("type") == "object" and not each.get("properties")
    }
    free = {path.rpartition(".")[2] for path in vague}
    assert free <= {"result", "kwargs", "remote_inputs"}, sorted(vague)


def test_every_schema_s_examples_fit_it() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for example in schema.get("examples", ()):
            if schema.get("additionalProperties") is False:
                assert set(example) <= set(schema["properties"]), name


def test_bounds_are_those_of_the_configuration() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    processes, auto = schemas["InferenceChange"]["properties"]["processes"]["anyOf"]
    assert (processes["minimum"], processes["maximum"]) == (1, 256)
    assert auto["const"] == "auto"
    for section, name, least, most in (
        ("Inference", "injected_latency_ms", 0, 60_000), ("Learning", "processes", 0, 64),
        ("Learning", "batch_size", 1, 65_536),
    ):
        field = schemas[f"{section}Change"]["properties"][name]
        assert (field["minimum"], field["maximum"]) == (least, most)
    assert schemas["LearningChange"]["properties"]["learning_rate"]["exclusiveMinimum"] == 0
    limit, _, kinds = DOCUMENT["paths"]["/v1/events"]["get"]["parameters"]
    assert (limit["schema"]["minimum"], limit["schema"]["maximum"]) == (1, 1000)
    assert kinds["schema"]["maxItems"] == 20


@calls
def test_who_has_no_token_is_turned_away(
    stranger: TestClient, name: str, call: dict[str, Any]
) -> None:
    method, path = name.replace("{id}", "0" * 16).split()
    answer = stranger.request(method, path)
    assert (answer.status_code == 401) is (name not in OPEN)


def test_it_is_served(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert document["paths"].keys() == DOCUMENT["paths"].keys()
    assert document["security"] == [{"token": []}]
    assert document["paths"]["/livez"]["get"]["security"] == []
