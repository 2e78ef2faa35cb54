"""What a task is: `task.toml` beside a kernel, read and validated.

Holds no tensors and imports no torch; running a task's `task.py` is the referee's work.
"""

from __future__ import annotations

import math
import random
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from tilewright.cases import Backend as Backend
from tilewright.cases import Case as Case
from tilewright.cases import CaseEntry, Draw, HiddenEntry, Strict
from tilewright.cases import case_label as case_label
from tilewright.rules import Rules
from tilewright.taskerrors import TaskError as TaskError
from tilewright.taskerrors import validated

LARGE_TABLES = 8
"""Hidden tables of which a check runs large cases."""
NAME = r"^[a-z0-9][a-z0-9_-]{0,63}$"


class Frontend(StrEnum):
    """What the kernel is written in."""

    CUTILE = "cutile"
    TRITON = "triton"
    TORCH = "torch"


class Values(StrEnum):
    """Values of a case's floating-point inputs: the task's own draw, or a class that the referee makes."""

    DRAWN = "drawn"
    ZEROS = "zeros"
    ONES = "ones"
    LARGE = "large"
    TINY = "tiny"
    CANCELLING = "cancelling"
    INTEGERS = "integers"
    SPIKE = "spike"
    OFFSET = "offset"


@dataclass(frozen=True)
class Work:
    """The compulsory work of a case: each input read once, each output written once.

    `bytes`: bytes read and written. `flops`: floating-point operations; a multiply-add counts as two. `dtype`: name of
    the torch dtype whose arithmetic rate bounds the flops. `written`: how many of the bytes are written. A task leaves
    it out, and the evaluator takes the size of the outputs.
    """

    bytes: float
    flops: float
    dtype: str
    written: float | None = None

    @property
    def intensity(self) -> float:
        """Arithmetic intensity in flops per byte."""
        return self.flops / self.bytes if self.bytes else math.inf


class Tolerance(Strict):
    """How far an output may be from the float64 reference. What is left out follows from the dtype."""

    rtol: float | None = Field(None, ge=0, description="allowed error relative to each element")
    atol: float | None = Field(None, ge=0, description="allowed absolute error of an element")
    rel_l2: float | None = Field(None, ge=0, description="allowed ‖out − ref‖ / ‖ref‖")


class ValueRules(Strict):
    """Classes of values that no check of a task uses, and why its inputs never hold such."""

    exclude: list[Values] = Field([], description="classes of values that no check uses")
    reason: str = Field("", description="why the inputs never hold such values, in one sentence")

    @model_validator(mode="after")
    def _explained(self) -> ValueRules:
        if Values.DRAWN in self.exclude:
            raise ValueError("exclude: 'drawn' is the task's own draw, without which nothing is checked")
        if self.exclude and not self.reason:
            raise ValueError("exclude needs reason, one sentence")
        return self


def _entry_point(text: str) -> str:
    module, colon, function = text.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module.split("."), function]):
        raise ValueError("an entry point is written module:function, as in fixed_launch:rmsnorm")
    if module.endswith(".py"):
        raise ValueError(f"an entry point names a module, not a file: write {module.removesuffix('.py')}:{function}")
    return text


def relative(text: str) -> str:
    if PurePosixPath(text).is_absolute():
        raise ValueError("a path here is relative to task.toml's folder")
    return text


class Command(Strict):
    """A command of the repository's, as a list of words; `python` stands for the Python that runs the server."""

    command: list[str] = Field(min_length=1, description="a list of words, of which `python` is the server's Python")
    timeout_s: float = Field(300.0, gt=0, le=7200, description="limit of one run of the command, in seconds")


class Tests(Command):
    """A repository's own tests, which a version has to pass before it is kept."""

    root: Annotated[str, AfterValidator(relative)] = Field(
        "../..", description="folder that the command runs in, from task.toml's folder"
    )


class TaskFile(Strict):
    """The content of `task.toml` of a native task."""

    name: str = Field(pattern=NAME, description="lower case letters, digits, _ and -")
    entry: Annotated[str, AfterValidator(_entry_point)] = Field(
        description="the callable, as module:function; it returns its outputs, or fills the arguments in outputs"
    )
    editable: list[Annotated[str, AfterValidator(relative)]] = Field(
        min_length=1, description="the files that a candidate may change; all others are protected"
    )
    frontend: Frontend = Field(Frontend.CUTILE, description="the language of the kernel")
    outputs: list[str] = Field(
        default_factory=list,
        description="arguments that hold the results after the call; empty if the entry point returns them",
    )
    python_path: list[Annotated[str, AfterValidator(relative)]] = Field(
        default_factory=list, description="further folders to import from, relative to task.toml"
    )
    tolerance: Tolerance = Field(Tolerance(), description="allowed errors, below")
    values: ValueRules = Field(ValueRules(), description="classes of values to leave out, below")
    reference: Literal["task", "baseline"] = Field(
        "task",
        description="task: the function `reference` of task.py; baseline: the version that the session began with, on "
        "the task's own draws alone, so that an error of that version is not seen",
    )
    strided: bool = Field(False, description="check also on other strides and alignments: the entry point takes any")
    deterministic: bool = Field(True, description="whether the same input must give the same bytes")
    deterministic_reason: str = Field("", description="why two calls may give other bytes, in one sentence")
    library_calls: Literal["allow", "forbid"] = Field(
        "allow", description="forbid: only the candidate's own kernels may compute"
    )
    constant: list[str] = Field(
        default_factory=list,
        description="inputs whose values are the same in every call, such as weights. The entry point may keep results "
        "that it computes from them. The values are not secret",
    )
    protection: Literal["best", "replayed", "in-process"] = Field(
        "best",
        description="best: if the incumbent can be replayed, the candidate must be too; replayed: the baseline and "
        "every candidate must be; in-process: if either cannot be, both are timed in their own processes",
    )
    precision: Literal["inputs", "tfloat32"] = Field(
        "inputs", description="tfloat32: a matmul of float32 values may round them to tfloat32"
    )
    timeout_s: float = Field(60.0, gt=0, le=3600, description="limit of one call of the entry point, in seconds")
    cases: list[CaseEntry] = Field(min_length=1, description="the visible cases: checked and measured")
    hidden: list[HiddenEntry] = Field(default_factory=list, description="ranges from which hidden cases are drawn")
    tests: Tests | None = Field(None, description="the repository's own tests, below")
    rules: Rules = Field(Rules(), description="what decides in a session of this task, below")

    @model_validator(mode="before")
    @classmethod
    def _one_hidden_table(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("hidden"), dict):
            return data | {"hidden": [data["hidden"]]}
        return data

    @property
    def excluded(self) -> list[Values]:
        """The classes of values that no check uses. Only a reference in float64 judges any."""
        drawn_alone = self.reference == "baseline"
        return [values for values in Values if values is not Values.DRAWN] if drawn_alone else self.values.exclude

    @property
    def needs_replay(self) -> bool:
        """Whether all versions have to be replayed, whatever the incumbent is: the kernels of a captured program tell
        whether a library was called."""
        return self.protection == "replayed" or self.library_calls == "forbid"

    @model_validator(mode="after")
    def _consistent(self) -> TaskFile:
        if not self.deterministic and not self.deterministic_reason:
            raise ValueError("deterministic = false needs deterministic_reason, one sentence")
        if self.library_calls == "forbid" and self.frontend is Frontend.TORCH:
            raise ValueError("library_calls = 'forbid' leaves nothing to a torch task; leave the key out")
        if self.library_calls == "forbid" and self.protection == "in-process":
            raise ValueError("library_calls = 'forbid' needs what is replayed; leave protection = 'in-process' out")
        if self.reference == "baseline" and self.values.exclude:
            raise ValueError("values.exclude has no meaning with reference = 'baseline', which uses no class of values")
        keys = set(self.cases[0].case)
        for index, entry in enumerate(self.cases):
            if not entry.case:
                raise ValueError(f"cases[{index}] names no dimension")
            if set(entry.case) != keys:
                raise ValueError(f"cases[{index}] has keys {sorted(entry.case)}, cases[0] has {sorted(keys)}")
        for index, hidden in enumerate(self.hidden):
            if unknown := set(hidden.__pydantic_extra__) - keys:
                raise ValueError(f"hidden[{index}] draws {sorted(unknown)}, which no case has")
        return self


@dataclass(frozen=True)
class Task:
    """A task as read from disk: its file's content and the folder that holds it."""

    file: TaskFile
    folder: Path

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def module(self) -> str:
        return self.file.entry.partition(":")[0]

    @property
    def function(self) -> str:
        return self.file.entry.partition(":")[2]

    def written_in(self, frontend: Frontend) -> Task:
        """The same task with an entry point in another frontend."""
        return Task(self.file.model_copy(update={"frontend": frontend}), self.folder)

    def correctness_cases(self, backend: Backend) -> list[Case]:
        """The cases whose results are checked on `backend`: its own where it has any, else those of all."""
        own = [entry.case for entry in self.file.cases if entry.backend == backend]
        common = [entry.case for entry in self.file.cases if entry.backend is None]
        if backend == Backend.CPU:
            return own or common
        return common + own

    def benchmark_cases(self, backend: Backend) -> list[Case]:
        """The cases whose latency counts on `backend`.

        On the `cpu` backend these are the full-size ones: the model runs only a few blocks of each, and the figure
        speaks of the workload that matters.
        """
        if backend == Backend.CUDA:
            return self.correctness_cases(backend)
        common = [entry.case for entry in self.file.cases if entry.backend is None]
        return common or self.correctness_cases(backend)

    def weight(self, case: Case) -> float:
        """How much a visible case counts in what is said of all."""
        return next(entry.weight for entry in self.file.cases if entry.case == case)

    def hidden_cases(self, backend: Backend, seed: int, count: int) -> list[Case]:
        """`count` cases drawn from the hidden ranges for `backend`; the same seed draws the same ones."""
        source = random.Random(seed)
        entries, visible = self._tables(backend, count, source), self.correctness_cases(backend)
        cases: list[Case] = []
        for number, entry in enumerate(entries):
            least = min(count, 2) if entry.has_range else 1  # both ends of every range
            share = max(len(range(number, count, len(entries))), least)
            cases += entry.draw([source.choice(visible) for _ in range(share)], source)
        return cases

    def large_cases(self, backend: Backend, seed: int) -> list[Case]:
        """Cases in which every hidden range is near its upper end, or the largest visible size if that is more, with
        the choices of a list in turn: what goes wrong only from some size on, and only for such a choice, is not left
        to chance."""
        source = random.Random(seed)
        visible = self.correctness_cases(backend)
        tables = self._tables(backend, LARGE_TABLES, source)
        return [case for entry in tables for case in entry.draw_large(visible, source)]

    def wide_cases(self, backend: Backend, seed: int, count: int) -> list[Case]:
        """The hidden cases that a candidate has to be right on before it is kept: `count` over all of the tables, or as
        many as there are that are not visible. None without a table for `backend`."""
        source = random.Random(seed)
        visible, entries = self.correctness_cases(backend), self._tables(backend, count, source)
        shares = [entry.draw_wide(visible, -(-count // len(entries)), source) for entry in entries]
        return list({case_label(case): case for share in shares for case in share}.values())

    def draws(self, backend: Backend, case: Case) -> bool:
        """Whether a check on `backend` may run this case: it is visible, or lies in the ranges of a hidden table."""
        visible = self.correctness_cases(backend)
        return case in visible or any(entry.holds(case, visible) for entry in self._hidden(backend))

    def _tables(self, backend: Backend, count: int, source: random.Random) -> list[HiddenEntry]:
        """The hidden tables, or `count` of them if there are more: each may hold one call of a test."""
        tables = self._hidden(backend)
        return tables if len(tables) <= count else source.sample(tables, count)

    def _hidden(self, backend: Backend) -> list[HiddenEntry]:
        entries = [entry for entry in self.file.hidden if entry.backend == backend]
        return entries or [entry for entry in self.file.hidden if entry.backend is None]


def is_command_task(data: dict[str, Any]) -> bool:
    """Whether a task file's content is that of a command task."""
    return any(isinstance(data.get(table), dict) and "command" in data[table] for table in ("correctness", "benchmark"))


def tables_of(text: str, origin: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises `TaskError`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{origin}: not valid TOML: {error}") from None


def parse_task(text: str, origin: Path) -> TaskFile:
    """The validated content of a task file. Raises `TaskError` naming file, key and remedy."""
    data = tables_of(text, origin)
    if is_command_task(data):
        raise TaskError(
            f"{origin}: this task runs a repository's own commands; what was asked for takes a native task (entry, "
            "cases, and a task.py with make_inputs and reference), which `tilewright init module:function` writes"
        )
    return validated(TaskFile, data, f"{origin}: ", hidden=Draw)


def load_task(path: Path) -> Task:
    """Read a task from its `task.toml`, or from the folder that holds one.

    Raises `TaskError` where the file is missing or wrong, or where a file that it names does not exist.
    """
    path = path / "task.toml" if path.is_dir() else path
    if not path.is_file():
        raise TaskError(f"{path}: no such task file; give the folder that holds task.toml, or the file itself")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise TaskError(f"{path}: not UTF-8, which TOML files are") from None
    task = Task(parse_task(text, path), path.parent)
    if not (task.folder / "task.py").is_file():
        raise TaskError(f"{task.folder / 'task.py'}: missing; it defines make_inputs, reference and work")
    for name in task.file.editable:
        if not (task.folder / name).is_file():
            raise TaskError(f"{path}: editable: {name}: no such file beside task.toml")
        if (task.folder / name).resolve() in (path.resolve(), (task.folder / "task.py").resolve()):
            raise TaskError(f"{path}: editable: {name} defines the task and cannot be edited by an experiment")
    return task
