"""A definition of flashinfer-bench becomes a task, and a kernel that was kept goes out as a solution for it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tilewright.attach.function import argument_of, completed
from tilewright.attach.inputs import Call, Inputs, Tensor, inputs_of
from tilewright.attach.repository import Proposal, Wishes, committed, named_after
from tilewright.attach.writing import task_py
from tilewright.errors import UsageError
from tilewright.session.checkout import Checkout
from tilewright.session.state import State

DEFINITION = "definition.json"
SIZE = 128
"""Of an axis that no workload gives."""
INTEGERS = ("int64", "int32", "int16", "int8")


class Axis(BaseModel):
    """A dimension. It is a constant if it has a value."""

    value: int | None = None


class Spec(BaseModel):
    """An input. A scalar has no shape."""

    shape: list[str] | None
    dtype: str
    optional: bool = False


class Definition(BaseModel):
    """What flashinfer-bench calls a definition, as far as a task needs it."""

    model_config = ConfigDict(extra="ignore")
    name: str
    axes: dict[str, Axis]
    inputs: dict[str, Spec]
    reference: str
    constraints: list[str] = Field(default_factory=list)

    def entry(self) -> str:
        """The function of the reference: `run`, or the last one. Its parameters name the inputs, in their order."""
        functions = [node for node in ast.parse(self.reference).body if isinstance(node, ast.FunctionDef)]
        function = next((node for node in functions if node.name == "run"), functions[-1])
        names = [parameter.arg for parameter in function.args.args]
        if not self.inputs.keys() <= {*names} and len(names) >= len(self.inputs):
            self.inputs = dict(zip(names, self.inputs.values(), strict=False))
        for name in {*names[: len(names) - len(function.args.defaults)]} & self.inputs.keys():
            self.inputs[name].optional = False
        return function.name


def propose(root: Path, wishes: Wishes, tell: Callable[[str], None]) -> Proposal:
    """A task for the definition in a file. Its cases are those of the workloads beside it, the largest first; or the
    wished arguments give the axes and scalars. Raises `UsageError`."""
    path, (_, files) = Path(wishes.entry), committed(root)
    try:
        text = path.read_text(encoding="utf-8")
        definition = Definition.model_validate_json(text)
        function = definition.entry()
        given = dict(map(argument_of, wishes.arguments))
        if tied := [name for name, value in given.items() if isinstance(value, dict)]:
            raise UsageError(f"--arg {tied[0]}: the definition says which axis it is; give its size")
        inputs = _inputs(definition, _workloads(path, definition), given)
    except ValidationError as error:
        first = error.errors()[0]
        why = ": ".join([*map(str, first["loc"]), first["msg"]])
        raise UsageError(f"{path} is no definition of flashinfer-bench: {why}") from None
    except (OSError, SyntaxError, IndexError) as error:
        raise UsageError(f"{path} is no definition of flashinfer-bench: {error}") from None
    except KeyError as error:
        raise UsageError(f"{path}: a shape names {error}, which is no axis of the definition") from None
    beside = {
        "task.py": task_py(f"definition.{function}", "import definition", inputs),
        "definition.py": definition.reference + "\n",
        "kernel.py": definition.reference + "\n",
        DEFINITION: text,
    }
    shown = ", ".join(f"{tensor} ({' x '.join(dims)})" for tensor, dims in inputs.shapes.items())
    seen = [
        f"inputs: {shown}",
        f"reference: the definition's own, in float64; kernel.py begins as {function} of it",
    ]
    head: dict[str, Any] = {
        "name": wishes.name or named_after(definition.name), "entry": f"kernel:{function}", "editable": ["kernel.py"],
        "frontend": "torch",
    }  # fmt: skip
    return completed(files, head, inputs, wishes.ranges, beside, seen, tell)


def solution(checkout: Checkout, session: str = "") -> str:
    """What a session kept, as a solution of the definition that its task was made of, in JSON. Raises `UsageError`."""
    folder = checkout.session_folder(session)
    state = State.of(checkout.journal(folder).entries)
    started = state.started
    place = PurePosixPath(started.task)
    if not state.kept:
        raise UsageError(f"session {started.session} kept no edit, so there is no solution")
    files = checkout.repository.files(state.incumbent_commit)
    text = files.get(str(place / DEFINITION))
    if text is None:
        raise UsageError(f"{place} has no {DEFINITION}: `tilewright init flashinfer:FILE` makes tasks that have one")
    sources = {PurePosixPath(name).relative_to(place).as_posix(): files[name].decode() for name in started.editable}
    triton = any(re.search(r"^\s*(import|from) triton\b", source, re.MULTILINE) for source in sources.values())
    module, _, function = started.entry.partition(":")
    spec = {
        "language": "triton" if triton else "python",
        "target_hardware": [started.environment.device],
        "entry_point": f"{module}.py::{function}",
        "dependencies": [],
        "destination_passing_style": False,
    }
    solution = {
        "name": f"{started.task_name}_{started.session}",
        "definition": json.loads(text)["name"],
        "author": "tilewright",
        "spec": spec,
        "sources": [{"path": path, "content": source} for path, source in sources.items()],
    }
    return json.dumps(solution, indent=2, ensure_ascii=False) + "\n"


def _workloads(path: Path, definition: Definition) -> list[dict[str, Any]]:
    """The workloads of the data set that the file lies in; none if there is no file of them."""
    for folder in path.parents:
        for file in sorted(folder.glob(f"workloads/**/{definition.name}.jsonl")):
            lines = file.read_text(encoding="utf-8").splitlines()
            return [json.loads(line)["workload"] for line in lines if line.strip()]
        if (folder / "workloads").is_dir():
            break
    return []


def _inputs(definition: Definition, workloads: list[dict[str, Any]], given: dict[str, Any]) -> Inputs:
    constants = {name: axis.value for name, axis in definition.axes.items() if axis.value is not None}
    derived = {
        match[1]: f"{match[2]} + 1"
        for rule in definition.constraints
        if (match := re.fullmatch(r"(\w+) == (\w+) \+ 1", rule)) and match[1] not in constants
    }
    last_of = {
        match[2]: match[1]
        for rule in definition.constraints
        if (match := re.fullmatch(r"(\w+) == (\w+)\[-1\](?:\.item\(\))?", rule))
    }
    free = [name for name in definition.axes if name not in constants and name not in derived]
    pages = next((spec.shape[0] for name, spec in definition.inputs.items() if "cache" in name and spec.shape), "")
    calls = []
    for workload in workloads or [{}]:
        sizes = {name: int(given.get(name, workload.get("axes", {}).get(name, SIZE))) for name in free}
        sizes |= {name: sizes[whole.split()[0]] + 1 for name, whole in derived.items()} | constants
        scalars = {
            name: value["value"] for name, value in workload.get("inputs", {}).items() if value.get("type") == "scalar"
        }
        call = Call({}, {})
        for name, spec in definition.inputs.items():
            if spec.shape is None:
                if name in given or name in scalars or not spec.optional:
                    call.values[name] = given.get(name, scalars.get(name, _scalar(name, spec, constants)))
            elif not spec.optional or name in last_of or "indices" in name:
                dtype = "int32" if spec.dtype == "unknown" else spec.dtype
                values = _values(name, dtype, last_of, pages)
                call.tensors[name] = Tensor([sizes[axis] for axis in spec.shape], dtype, values=values)
        calls.append(call)
    calls.sort(key=lambda call: -call.elements)
    axes = {name: definition.inputs[name].shape or [] for name in calls[0].tensors}
    named = {
        name: [str(constants.get(axis, derived.get(axis, axis))) for axis in shape] for name, shape in axes.items()
    }
    return inputs_of(calls, named)


def _scalar(name: str, spec: Spec, constants: Mapping[str, int]) -> Any:
    if name in constants:
        return constants[name]
    if "scale" in name and "head_dim" in constants:
        return constants["head_dim"] ** -0.5
    if spec.dtype.startswith("float"):
        return 1e-6 if "eps" in name else 1.0
    return spec.dtype == "bool" or 1


def _values(name: str, dtype: str, last_of: Mapping[str, str], pages: str) -> dict[str, Any]:
    """What is known of a tensor's values by the definition."""
    if name in last_of:
        return {"rises_to": last_of[name]}
    if dtype == "bool":
        return {"share": 0.5}
    if dtype in (*INTEGERS, "uint8"):
        if pages and re.search("indices|page|block|table", name):
            return {"below": pages}
        return {"fill": "the definition does not say which values it has"}
    return {"probabilities": True} if name == "probs" else {}
