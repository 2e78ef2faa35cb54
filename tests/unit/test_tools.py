"""A tool is one object: what clients see of it, what it says of wrong arguments, and that every front has it."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from mcp import Client
from mcp_types import Tool as ListedTool
from pydantic import Field

import tilewright
from tests.commandline import tilewright as command
from tests.pages import reference
from tilewright import tools
from tilewright.errors import UsageError
from tilewright.interface.mcp import build_server
from tilewright.tools import table
from tilewright.tools.tool import Choices, Effect, Params, Settings, Tool, answer_schema, arguments_schema
from tilewright.tools.workspace import Workspace
from tilewright.wire.record import Record

TAKEN_BY_GEMINI = {
    "type", "description", "enum", "items", "minItems", "maxItems", "properties", "required", "anyOf", "minimum",
    "maximum", "minLength", "maxLength", "pattern", "default", "additionalProperties",
}  # fmt: skip
"""Of a function's parameters; a list that holds any other keyword is refused whole."""
LEAKS = re.compile(
    r"pydantic|validation error|Input should|input_type|Traceback|Error executing|\x00|For further", re.I
)


def schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all within it."""
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]
    inner += [schema[key] for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)]
    for part in inner:
        yield from schemas(part)


def test_every_client_can_read_the_schemas_of_arguments() -> None:
    for tool in table().values():
        Draft202012Validator.check_schema(arguments_schema(tool.params))
        for schema in schemas(arguments_schema(tool.params)):
            assert set(schema) <= TAKEN_BY_GEMINI, f"{tool.name}: {sorted(set(schema) - TAKEN_BY_GEMINI)}"
            choices = schema.get("enum", ["some"])
            assert all(isinstance(choice, str) and choice for choice in choices), f"{tool.name}: {choices}"
            assert schema.get("default", 0) not in (None, "")


def test_answers_have_named_and_typed_fields() -> None:
    for tool in table().values():
        answer = answer_schema(tool.report)
        Draft202012Validator.check_schema(answer)
        assert {"summary", "next"} <= set(answer["properties"])
        for schema in schemas(answer):
            assert not {"$ref", "$defs", "title", "default"} & set(schema)
            for part in schema.get("properties", {}).values():
                assert "type" in part


def refused(arguments: dict[str, Any], tool: str = "dump_ir", root: Path = Path("/")) -> str:
    with pytest.raises(UsageError) as caught:
        called(tool, root, arguments)
    return str(caught.value)


def called(name: str, root: Path, arguments: dict[str, Any]) -> Any:
    async def silent(text: str) -> None: ...

    tool = table()[name]
    return asyncio.run(tool.work(Workspace(root), tool.parse(arguments), silent))


SCALAR = "must be a number, true or false, or a text"


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("start_session", {"task": 3}, "task: must be a valid string, not 3"),
        ("start_session", {"task": "t", "backend": "gpu"}, "backend: must be 'auto', 'cuda' or 'cpu', not \"gpu\""),
        ("start_session", {"task": "t", "rules": 3}, "rules: must be a valid dictionary, not 3"),
        ("start_session", {"task": "t", "include_dirty": "eh"},
         'include_dirty: must be a valid boolean, not "eh"'),
        ("start_session", {"task": "t", "bakend": "cpu"},
         "bakend: unknown key; did you mean 'backend'?"),
        ("append_result", {"optimization": 3}, "optimization: must be a valid string, not 3"),
        ("append_result", {"optimization": ""}, "optimization: missing"),
        ("append_result", {"optimization": "x", "root_cause": "y"},
         "root_cause: must be 'memory', 'compute', 'latency', 'launch', 'scheduling' or 'unknown', not \"y\""),
        ("session_status", {"verbose": True}, "verbose: unknown key; known keys are none"),
        ("dump_ir", {"compile_seconds": 0}, "compile_seconds: must be greater than or equal to 1, not 0"),
        ("dump_ir", {"arch": "sm_90"}, 'arch: must be a valid list, not "sm_90"'),
        ("dump_ir", {"arch": ["null", "x"]}, "arch[0]: must match pattern '^sm_\\d{2,3}$', not \"x\""),
        ("dump_ir", {"compare": "nothing"}, "compare: must be 'incumbent', not \"nothing\""),
        ("dump_ir", {"case": {"M": [1]}}, f"case.M: {SCALAR}, not [1]"),
        ("dump_ir", {"case": {"M": [1], "N": [2]}, "compile_seconds": 0},
         "compile_seconds: must be greater than or equal to 1, not 0; "
         f"case.M: {SCALAR}, not [1]; case.N: {SCALAR}, not [2]"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_wrong_argument(tool: str, arguments: dict[str, Any], text: str) -> None:
    assert refused(arguments, tool) == f"{tool}: {text}"


UNSET = [None, "", " ", "null", "None", "undefined", ["null"], [None], [""], '["null"]', '""']


@pytest.mark.parametrize("value", UNSET, ids=repr)
def test_what_a_client_sends_for_not_set_is_not_set(value: Any) -> None:
    """Of each argument of each tool: the tool is called as it is without the argument."""
    given = {"task": "t", "optimization": "x"}
    for tool in table().values():
        needed = {name: given[name] for name, field in tool.params.model_fields.items() if field.is_required()}
        sent = dict.fromkeys(tool.params.model_fields, value) | {"random_string": value} | needed
        assert tool.parse(sent) == tool.parse(needed)
        for name in needed:
            with pytest.raises(UsageError, match=f"{name}: missing"):
                tool.parse({**needed, name: value})


def test_a_table_is_an_object_a_text_of_json_or_texts_of_a_command_line() -> None:
    config = {"TILE": 64, "ACT": "none", "NAME": "", "ON": False}
    parse = table()["profile"].parse
    assert parse({"config": config | {"M": None}}).config == config
    assert parse({"config": json.dumps(config)}).config == config
    assert parse({"config": ["TILE=64", "ACT=none", "ON=false"]}).config == {"TILE": 64, "ACT": "none", "ON": False}
    space = {"TILE": [64, 128], "ACT": ["none"]}
    assert table()["autotune"].parse({"space": space}).space == space
    assert table()["autotune"].parse({"space": ["TILE=64,128", "ACT=none"]}).space == space
    assert refused({"space": ["TILE"]}, "autotune").endswith("are written NAME=1,2,4")
    for rules in (["floor=0,01"], ["a=1", "a=2"]):
        assert "takes one value" in refused({"rules": rules}, "start_session")


@pytest.fixture
def root(make_task: Callable[..., Path]) -> Path:
    root = make_task()
    (root / "out").symlink_to("/usr")
    (root / "loop").symlink_to("loop")
    return root


PATHS = ["", ".", "..", "/", "/etc", "task/../..", "~", "out", "out/lib", "loop", "task/kernel.py/x",
         "nowhere", "a" * 300, "a/" * 5000, "task\nmore", "\u202e", "-rf", "task\\", "con:", "*"]  # fmt: skip


def test_a_path_that_holds_no_task_is_refused_in_a_sentence(root: Path) -> None:
    for tool in ("start_session", "dump_ir", "autotune", "profile"):
        for path in PATHS if tool == "start_session" else PATHS[1:]:  # without one, they take the session's task
            text = refused({"task": path}, tool, root)
            assert not LEAKS.search(text), text
            assert len(text) < 500, text
            assert text.count("\n") == 0, text


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


TOOLS = {tool.name: arguments_schema(tool.params) for tool in table().values()}


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

    @settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
    @given(calls())
    def fuzz(call: tuple[str, dict[str, Any]]) -> None:
        tool, arguments = call
        try:
            report = called(tool, root, arguments)
        except UsageError as error:
            text = str(error)
            assert text and not LEAKS.search(text), text
            assert len(text) < 1500
            text.encode()
        except Ran:
            pass
        else:
            answer = report.model_dump(mode="json", exclude_none=True)
            Draft202012Validator(answer_schema(table()[tool].report)).validate(answer)

    fuzz()


class Greeting(Record):
    summary: str
    status: str = "passed"


class Greet(Params):
    """Greet somebody, so that the table has one more tool."""

    name: str = Field(description="who is greeted")
    loudly: bool = Field(False, description="in capitals")
    words: Settings = Field({}, description="words by kind")
    lists: Choices = Field({}, description="lists by kind")


async def greet(workspace: Workspace, given: Greet, tell: Callable[[str], Any]) -> Greeting:
    await tell("clearing the throat")
    if given.name == "full":
        raise OSError(28, "No space left on device", "/data/x")
    if given.name == "broken":
        raise ZeroDivisionError("a defect")
    text = f"hello {given.name} {given.words} {given.lists}"
    return Greeting(summary=text.upper() if given.loudly else text, status="failed" if given.name == "me" else "passed")


@pytest.fixture
def greeting(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("tests.greeting")
    module.TOOLS = (Tool("say_hello", "Say hello", Effect.READS, Greet, Greeting, greet),)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(tools, "MODULES", [*tools.MODULES, module.__name__])


@pytest.mark.usefixtures("greeting")
def test_a_new_tool_is_one_module_and_one_line() -> None:
    """Over MCP, on the command line, in Python and in the reference."""
    listed: list[ListedTool] = []
    texts: list[tuple[bool | None, str]] = []
    progress: list[str | None] = []

    async def tell(count: float, total: float | None, text: str | None) -> None:
        progress.append(text)

    async def scene() -> None:
        async with Client(build_server(Workspace(Path("/")))) as client:
            listed.extend((await client.list_tools()).tools)
            for name in ("you", "full", "broken"):
                answer = await client.call_tool("say_hello", {"name": name, "words": {"a": 1}}, progress_callback=tell)
                texts.append((answer.is_error, str(getattr(answer.content[0], "text", ""))))

    asyncio.run(scene())
    assert listed[-1].name == "say_hello"
    assert listed[-1].description == "Greet somebody, so that the table has one more tool."
    assert listed[-1].annotations is not None and listed[-1].annotations.read_only_hint
    assert texts[0] == (False, '{"summary":"hello you {\'a\': 1} {}","status":"passed"}')
    assert texts[1] == (True, "[Errno 28] No space left on device: '/data/x'")
    assert texts[2] == (True, "say_hello failed, which is a defect of Tilewright: ZeroDivisionError: a defect")
    assert progress == ["clearing the throat"] * 3
    assert tilewright.run("say_hello", name="you", loudly=True).summary == "HELLO YOU {} {}"
    with pytest.raises(UsageError, match="no tool 'say_goodbye'; the tools are start_session, "):
        tilewright.run("say_goodbye")
    assert "## say_hello\n\nGreet somebody" in reference.tools()


@pytest.mark.usefixtures("greeting")
def test_a_new_tool_is_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    from tilewright.interface import commands
    from tilewright.interface.toolcommands import Group, add_tools

    app = typer.Typer(cls=Group)
    add_tools(app, session=typer.Typer())
    monkeypatch.setattr("tests.commandline.app", app)
    for name in ("say-hello", "say_hello"):
        done = command(name, "you", "--loudly", "--words", "a=1", "--words", "b=true", "--lists", "c=1,2")
        assert (done.returncode, done.stdout) == (0, "HELLO YOU {'A': 1, 'B': TRUE} {'C': [1, 2]}\nstatus: passed\n")
    done = command("say-hello", "me", "--json")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (1, "failed")
    assert command("say-hello").returncode == 2
    assert ": words: 'x': " in command("say-hello", "you", "--words", "x").stderr
    monkeypatch.setattr("tests.commandline.app", commands.app)
    assert all(command(name, "--help").returncode == 0 for name in table() if name != "say_hello")
