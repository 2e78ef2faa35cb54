"""What the server publishes of its tools, and what it says of arguments that do not fit. No tool runs anything here."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp_types import CallToolResult

from tilewright.mcp_server import Desk, build_server
from tilewright.toolschemas import without_unset
from tilewright.toolserver import ToolServer

TAKEN_BY_GEMINI = {
    "type", "description", "enum", "items", "minItems", "maxItems", "properties", "required", "anyOf", "minimum",
    "maximum", "minLength", "maxLength", "pattern", "default", "additionalProperties",
}  # fmt: skip
"""Of a function's parameters; a list that holds any other keyword is refused whole."""
LEAKS = re.compile(
    r"pydantic|validation error|Input should|input_type|Traceback|Error executing|\x00|For further", re.I
)


def server(root: Path = Path("/")) -> ToolServer:
    return build_server(Desk(root))


def schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all within it."""
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]
    inner += [schema[key] for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)]
    for part in inner:
        yield from schemas(part)


def test_every_client_can_read_the_schemas_of_arguments() -> None:
    for tool in asyncio.run(server().list_tools()):
        Draft202012Validator.check_schema(tool.input_schema)
        for schema in schemas(tool.input_schema):
            assert set(schema) <= TAKEN_BY_GEMINI, f"{tool.name}: {sorted(set(schema) - TAKEN_BY_GEMINI)}"
            choices = schema.get("enum", ["some"])
            assert all(isinstance(choice, str) and choice for choice in choices), f"{tool.name}: {choices}"
            assert schema.get("default", 0) not in (None, "")


def test_answers_have_named_and_typed_fields() -> None:
    for tool in asyncio.run(server().list_tools()):
        assert tool.output_schema is not None
        Draft202012Validator.check_schema(tool.output_schema)
        assert {"summary", "next"} <= set(tool.output_schema["properties"])
        for schema in schemas(tool.output_schema):
            assert not {"$ref", "$defs", "title", "default"} & set(schema)
            for part in schema.get("properties", {}).values():
                assert "type" in part


def refused(arguments: dict[str, Any], tool: str = "dump_ir", root: Path = Path("/")) -> str:
    with pytest.raises(ToolError) as caught:
        asyncio.run(server(root).call_tool(tool, arguments))
    assert not isinstance(caught.value, UnexpectedToolError)
    return str(caught.value)


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("start_session", {}, "start_session needs task, a text: folder of task.toml, relative to the server's root"),
        ("start_session", {"task": 3}, "task takes a text, not 3"),
        ("start_session", {"task": "t", "backend": "gpu"}, 'backend takes auto, cuda or cpu, not "gpu"'),
        ("start_session", {"task": "t", "rules": 3},
         "rules takes an object, each of whose values is a number or true or false, not 3"),
        ("start_session", {"task": "t", "rules": {"patience": "x"}},
         'rules.patience takes a number or true or false, not "x"'),
        ("append_result", {"optimization": 3}, "optimization takes a text of 1 to 120 characters, not 3"),
        ("dump_ir", {"compile_seconds": 0}, "compile_seconds takes a number from 1 to 300, not 0"),
        ("dump_ir", {"compile_seconds": "x"}, 'compile_seconds takes a number from 1 to 300, not "x"'),
        ("start_session", {"task": "t", "include_dirty": "eh"}, 'include_dirty takes true or false, not "eh"'),
        ("session_status", {"verbose": True}, 'session_status has no argument "verbose"; it takes no arguments'),
        ("append_result", {"optimization": ""},
         "append_result needs optimization, a text of 1 to 120 characters: what was tried, in a few words"),
        ("start_session", {"task": None},
         "start_session needs task, a text: folder of task.toml, relative to the server's root"),
        ("dump_ir", {"arch": ["null", "x"]}, 'arch[0] takes a text such as sm_90, not "x"'),
        ("append_result", {"optimization": "x", "root_cause": "y"},
         'root_cause takes memory, compute, latency, launch, scheduling or unknown, not "y"'),
        ("dump_ir", {"arch": "sm_90"}, 'arch takes a list of at most 12 items, each a text such as sm_90, not "sm_90"'),
        ("dump_ir", {"arch": ["sm_90", "x"]}, 'arch[1] takes a text such as sm_90, not "x"'),
        ("dump_ir", {"compare": "nothing"}, 'compare takes incumbent, not "nothing"'),
        ("dump_ir", {"case": {"M": [1]}}, "case.M takes a number, true or false or a text, not [1]"),
        ("autotune", {"kind": "T0"}, 'kind takes matmul, attention or rows, not "T0"'),
        ("profile", {"task": "a\0b"}, 'task holds a NUL or half a surrogate pair, which is no text: "a\\u0000b"'),
        ("profile", {"config": {"a\ud800": 1}},
         'config holds a NUL or half a surrogate pair, which is no text: "a\\ud800"'),
        ("profile", {"\0": 1}, 'the name "\\u0000" holds a NUL or half a surrogate pair, which is no text'),
    ],
)  # fmt: skip
def test_what_is_said_of_a_wrong_argument(tool: str, arguments: dict[str, Any], text: str) -> None:
    assert refused(arguments, tool) == text


UNSET = [None, "", " ", "null", "None", "undefined", ["null"], [None], [""], '["null"]', '""']


@pytest.mark.parametrize("value", UNSET, ids=repr)
def test_what_a_client_sends_for_not_set_is_not_set(value: Any) -> None:
    """Of each parameter of each tool: the tool is called as it is without the parameter."""
    served = server()
    for name, schema in TOOLS.items():
        given = {"task": "t", "optimization": "x"}
        needed = {one: given[one] for one in schema.get("required", [])}
        sent = dict.fromkeys(schema["properties"], value) | {"random_string": value} | needed
        tool = served._tool_manager.get_tool(name)
        assert tool is not None
        about = tool.fn_metadata
        left = without_unset(about.arg_model.model_json_schema(), about.pre_parse_json(sent))
        assert left == needed
        for one in needed:
            assert f"{name} needs {one}, " in refused({**needed, one: value}, name)


def test_what_an_object_holds_is_not_set_only_where_it_cannot_be_meant() -> None:
    def sent(tool: str, **arguments: Any) -> dict[str, Any]:
        found = server()._tool_manager.get_tool(tool)
        assert found is not None
        return without_unset(found.fn_metadata.arg_model.model_json_schema(), arguments)

    kept = {"config": {"ACT": "none", "NAME": "", "ON": False, "N": 0}}
    assert sent("profile", config=kept["config"] | {"M": None, "K": "null"}) == kept
    assert sent("start_session", rules={"patience": "", "hidden_cases": None, "hidden_seconds": 9}) == {
        "rules": {"hidden_seconds": 9}
    }
    assert sent("autotune", space={"TILE": [64, None], "ACT": ["none", ""], "N": [None], "M": []}) == {
        "space": {"TILE": [64], "ACT": ["none", ""], "M": []}
    }


@pytest.fixture
def root(make_task: Callable[..., Path]) -> Path:
    root = make_task()
    (root / "out").symlink_to("/usr")
    (root / "loop").symlink_to("loop")
    return root


PATHS = ["", ".", "..", "/", "/etc", "task/../..", "~", "out", "out/lib", "loop", "task/kernel.py", "task/kernel.py/x",
         "nowhere", "a" * 300, "a/" * 5000, "task\nmore", "\u202e", "-rf", "task\\", "con:", "*"]  # fmt: skip


@pytest.mark.parametrize("tool", ["start_session", "dump_ir", "autotune", "profile"])
@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_holds_no_task_is_refused_in_a_sentence(root: Path, tool: str, path: str) -> None:
    if not path and tool != "start_session":
        return  # the session's task
    text = refused({"task": path}, tool, root)
    assert not LEAKS.search(text)
    assert len(text) < 500
    assert text.count("\n") == 0


NEVER = [st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)]
ANYTHING = st.recursive(
    st.one_of(*NEVER, st.sampled_from(PATHS), st.text(st.characters(codec=None), max_size=4)),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=4), part, max_size=3),
    max_leaves=6,
)


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema allows, for the most part."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([fitting(arm) for arm in schema["anyOf"]])
    match schema["type"]:
        case "array":
            return st.lists(fitting(schema["items"]), max_size=3)
        case "object":
            return st.dictionaries(st.sampled_from(["N", "TILE", "dtype", ""]), fitting(schema["additionalProperties"]))
        case "boolean":
            return st.booleans()
        case "string":
            return st.sampled_from(["sm_90", "sm_100", *PATHS])
    return st.integers(-2, 300) | st.floats()


TOOLS = {tool.name: tool.input_schema for tool in asyncio.run(server().list_tools())}


class Ran(Exception):
    """The arguments were accepted, and a tool would run now."""


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    tool = draw(st.sampled_from(sorted(TOOLS)))
    known = {"task": {"type": "string"}} | TOOLS[tool]["properties"]
    names = draw(st.lists(st.sampled_from([*known, "tsak"]), unique=True, max_size=4))
    return tool, {name: draw(ANYTHING | fitting(known.get(name, {"type": "string"}))) for name in names}


def test_no_call_shows_anything_but_a_sentence(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop(*_: Any, **__: Any) -> None:
        raise Ran

    def stay(job: Any, what: str, key: str, *_: Any) -> None:
        """A job that has no task, and that later calls find under way."""
        job.what, job.key, job.message, job._calls = what, key, "starting", 0

    monkeypatch.setattr("tilewright.session.jobs.Job.attend", stop)
    monkeypatch.setattr("tilewright.session.jobs.Job.__init__", stay)
    monkeypatch.setattr("tilewright.session.jobs.Job.done", False)
    served = server(root)

    @settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
    @given(calls())
    def fuzz(call: tuple[str, dict[str, Any]]) -> None:
        tool, arguments = call
        try:
            answer = asyncio.run(served.call_tool(tool, arguments))
        except UnexpectedToolError as error:
            assert isinstance(error.__cause__, Ran), (tool, arguments, error.__cause__)
        except ToolError as error:
            text = str(error)
            assert text and not LEAKS.search(text), text
            assert len(text) < 1500
            text.encode()
        else:
            assert isinstance(answer, CallToolResult)
            Draft202012Validator(outputs[tool]).validate(answer.structured_content)

    outputs = {tool.name: tool.output_schema or {} for tool in asyncio.run(served.list_tools())}
    fuzz()
