"""What a command task is: a `task.toml` that names a repository's own test and benchmark commands.

Says nothing of how they are run; a native task, which the referee controls in full, is `task.py`'s.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from tilewright.cases import Strict
from tilewright.rules import Rules
from tilewright.task import NAME, Command, Task, is_command_task, load_task, relative, tables_of
from tilewright.taskerrors import TaskError, validated

MILLISECONDS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
"""What one of each unit is, in ms; a group of this name in a benchmark's pattern is a latency."""
JUNIT, OUT = "{junit}", "{out}"
"""What stands in a command for the file that pytest's JUnit report goes to, and for another result file."""


def _inside(text: str) -> str:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError("a path here is relative to `root` and stays inside it")
    return path.as_posix()


class Benchmark(Command):
    """The benchmark command, and how its figures are read. One figure is one case."""

    pattern: str = Field(
        description="regular expression whose group `ms` (or `us`, `ns`, `s`) is a latency; other named groups name "
        "its case"
    )
    property: str = Field(
        "", description="search what tests recorded under this name with record_property; needs --junitxml={junit}"
    )
    file: Annotated[str, AfterValidator(_inside)] = Field(
        "", description="search this file, which the command writes; empty: standard output"
    )

    @model_validator(mode="after")
    def _readable(self) -> Benchmark:
        if self.property and not holds(self.command, JUNIT):
            raise ValueError("property is read from pytest's report: add --junitxml={junit} to the command")
        if self.property and self.file:
            raise ValueError("give one of property and file")
        try:
            groups = re.compile(self.pattern).groupindex
        except re.error as error:
            raise ValueError(f"pattern is no regular expression: {error}") from None
        if len(groups.keys() & MILLISECONDS.keys()) != 1:
            raise ValueError("pattern needs one group named ms, us, ns or s, as in (?P<ms>[0-9.]+)")
        return self


def unit_of(pattern: str) -> str:
    """The unit of the latencies that a benchmark's pattern finds: the name of the group that holds them."""
    return next(unit for unit in MILLISECONDS if unit in re.compile(pattern).groupindex)


class SuiteFile(Strict):
    """A repository's tests, and the files that a candidate may change."""

    name: str = Field(pattern=NAME, description="lower case letters, digits, _ and -")
    root: Annotated[str, AfterValidator(relative)] = Field(
        ".", description="folder that commands run in and paths are relative to, from task.toml's folder"
    )
    editable: list[Annotated[str, AfterValidator(_inside)]] = Field(
        min_length=1, description="the files that a candidate may change, relative to root"
    )
    python_path: list[Annotated[str, AfterValidator(_inside)]] | None = Field(
        None, description="folders to import from before all others; default: those of the editable files' modules"
    )
    environment: dict[str, str] = Field({}, description="variables for both commands, added to the allowed ones")
    correctness: Command = Field(description="the command that runs the tests, below")

    @property
    def commands(self) -> list[Command]:
        return [self.correctness]

    @model_validator(mode="after")
    def _consistent(self) -> SuiteFile:
        words = [word.split("::")[0] for part in self.commands for word in part.command]
        for name in self.editable:
            if name in words:
                raise ValueError(f"editable: {name} is what a command runs; an experiment that edits it judges itself")
        return self


class CommandTaskFile(SuiteFile):
    """The content of `task.toml` of a command task."""

    benchmark: Benchmark = Field(description="the command that measures, below")
    rules: Rules = Field(Rules(), description="what decides in a session of this task, below")

    @property
    def commands(self) -> list[Command]:
        return [self.correctness, self.benchmark]


def holds(command: list[str], placeholder: str) -> bool:
    """Whether a command has the placeholder in one of its words."""
    return any(placeholder in word for word in command)


@dataclass(frozen=True)
class Suite:
    """A repository's tests as a task in `folder` names them."""

    file: SuiteFile
    folder: Path

    @property
    def name(self) -> str:
        return self.file.name

    def import_roots(self) -> list[str]:
        """The folders, relative to `root`, that modules are imported from before all others.

        For a file in a package it is the folder that holds the outermost package; a folder `src` is one for all below
        it that lies in no package, as namespace packages do.
        """
        if self.file.python_path is not None:
            return self.file.python_path or ["."]
        workplace = self.folder / self.file.root
        found = []
        for name in self.file.editable:
            place = PurePosixPath(name).parent
            inner = place
            while inner.parts and (workplace / inner / "__init__.py").is_file():
                inner = inner.parent
            if inner == place or place.parts[:1] == ("src",):
                inner = PurePosixPath("src" if place.parts[:1] == ("src",) else ".")
            found.append(inner.as_posix())
        return list(dict.fromkeys(found))


@dataclass(frozen=True)
class CommandTask(Suite):
    """A command task as read from disk: its file's content and the folder that holds it."""

    file: CommandTaskFile


def suite_of(task: Task) -> Suite | None:
    """The tests that a native task names; None if it names none. Raises `TaskError` where they cannot judge it."""
    tests = task.file.tests
    if tests is None:
        return None

    def placed(name: str) -> str:
        folder = task.folder.absolute().as_posix()
        return posixpath.relpath(posixpath.join(folder, name), posixpath.join(folder, tests.root))

    data = {
        "name": task.name,
        "root": tests.root,
        "editable": [*map(placed, task.file.editable)],
        "python_path": [*map(placed, task.file.python_path or ["."])],
        "correctness": {"command": tests.command, "timeout_s": tests.timeout_s},
    }
    return Suite(validated(SuiteFile, data, "task.toml: tests: "), task.folder)


def parse_command_task(text: str, origin: Path) -> CommandTaskFile:
    """The validated content of a command task's file. Raises `TaskError` naming file, key and remedy."""
    return validated(CommandTaskFile, tables_of(text, origin), f"{origin}: ")


def load(path: Path) -> Task | CommandTask:
    """Read a task of either kind from the folder that holds its `task.toml`.

    Raises `TaskError` where the file is missing or wrong, or where a file that it names does not exist.
    """
    file = path / "task.toml" if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
        commands = is_command_task(tomllib.loads(text))
    except (OSError, ValueError):
        commands = False
    if not commands:
        native = load_task(path)
        suite_of(native)
        return native
    task = CommandTask(parse_command_task(text, file), file.parent)
    workplace = task.folder / task.file.root
    for name in task.file.editable:
        if not (workplace / name).is_file():
            raise TaskError(f"{file}: editable: {name}: no such file in {workplace}")
    for place in task.file.python_path or []:
        if not (workplace / place).is_dir():
            raise TaskError(f"{file}: python_path: {place}: no such folder in {workplace}")
    return task


def workplace_of(task: Task | CommandTask, folder: PurePosixPath) -> PurePosixPath:
    """The folder that a task's paths are relative to, from the repository's root; `folder` holds its task.toml.

    Raises `TaskError` where it lies outside the repository.
    """
    root = task.file.root if isinstance(task, CommandTask) else "."
    return _normal(folder / root, f"root: {root}")


def editable_of(task: Task | CommandTask, folder: PurePosixPath) -> list[str]:
    """A task's editable files relative to the repository's root. Raises `TaskError` for one that lies outside, or if
    the tests that a native task names do."""
    place = workplace_of(task, folder)
    if isinstance(task, Task) and task.file.tests is not None:
        _normal(folder / task.file.tests.root, f"tests: root = {task.file.tests.root!r}")
    return [_normal(place / name, f"editable: {name}").as_posix() for name in task.file.editable]


def definition_of(task: Task | CommandTask) -> list[str]:
    """The files beside `task.toml`, itself among them, that define the task."""
    return ["task.toml"] if isinstance(task, CommandTask) else ["task.toml", "task.py"]


def _normal(path: PurePosixPath, what: str) -> PurePosixPath:
    found = PurePosixPath(posixpath.normpath(path))
    if found.parts[:1] == ("..",):
        raise TaskError(f"task.toml: {what} lies outside the repository")
    return found
