"""A native task around one function: a frozen copy in float64 is the reference; a call gives the inputs."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from tilewright.attach.called import by_baseline, calls_of, checked, tests_command
from tilewright.attach.finding import module_at, module_path
from tilewright.attach.inputs import FILL_IN, Call, Inputs, Tensor, alike_of, inputs_of
from tilewright.attach.repository import (
    Proposal,
    Wishes,
    chosen,
    committed,
    draft,
    named_after,
    need_name,
    tried,
)
from tilewright.attach.sizes import HEADS, Dimension
from tilewright.attach.trials import need_no_gpu, tried_out
from tilewright.attach.writing import adapter_py, frozen_copy, task_py, task_toml
from tilewright.cases import Draw
from tilewright.errors import UsageError
from tilewright.repository import Files, Repository

SHORT = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
DRAWN = ("bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2")
"""What normal numbers are rounded to, and a float64 reference can judge."""
OTHERS = ("int64", "int32", "int16", "int8", "uint8", "bool")
UNKNOWN = "its values are not known; draw them from generator"


def propose(root: Path, wishes: Wishes, tell: Callable[[str], None]) -> Proposal:
    """A native task for a function, or for that of the repository's kernel that its tests call. If no task can call
    that, a draft of one that runs the repository's own tests and benchmark. Raises `UsageError`."""
    need_name(wishes.name)
    own, files = committed(root)
    if wishes.entry:
        return _of_function(own, files, wishes, tell)
    kernel, test = chosen(files, wishes)
    own.need_own(PurePosixPath(kernel.path))
    select = wishes.select or kernel.backend * (kernel.backend in test.text)
    try:
        wanted = Wishes(kernel.path, name=wishes.name, test=wishes.test or test.path, select=select)
        proposal = _of_function(own, files, wanted, tell)
    except UsageError as error:
        return draft(wishes, kernel, test, str(error))
    open_task = f"{proposal.folder}/task.py would have a place to fill in"
    return draft(wishes, kernel, test, open_task) if proposal.is_open else proposal


def _of_function(own: Repository, files: Files, wishes: Wishes, tell: Callable[[str], None]) -> Proposal:
    path, entry, import_root = _resolved(files, wishes.entry)
    function = entry.partition(":")[2]
    if not function and not wishes.test:
        raise UsageError(f"{wishes.entry} is a module: name a function of it{_such_as(files[path], entry[:-1])}")
    reference = _resolved(files, wishes.reference)[1] if wishes.reference else ""
    shapes, dtypes = shapes_of(wishes.shapes)
    request: dict[str, Any] = {
        "entry": entry, "reference": reference, "shapes": shapes, "dtype": _dtype(wishes.dtype), "dtypes": {},
        "arguments": dict(map(argument_of, wishes.arguments)), "adapter": "",
    }  # fmt: skip
    calls, tests, passed = list[Call](), list[str](), True
    if wishes.test:
        tell(f"running {wishes.test} to see what it calls {function or entry.removesuffix(':')} with")
        tree = Path(own.root)
        function, calls, passed = calls_of(files, tree, entry, wishes.test, wishes.select, import_root, tell)
        entry = request["entry"] = f"{entry.partition(':')[0]}:{function}"
        tests = tests_command(wishes.test, wishes.select, files)
        smallest = min(alike_of(calls), key=lambda call: (call.has_empty, call.elements))
        request["shapes"] = {name: tensor.shape for name, tensor in smallest.tensors.items()}
        request["dtypes"] = {name: tensor.dtype for name, tensor in smallest.tensors.items()}
        request["arguments"] = smallest.values
    elif dtypes:
        request["dtypes"] = dict.fromkeys(shapes, request["dtype"]) | dtypes
    name = wishes.name or named_after(function)
    folder = PurePosixPath("perf") / name
    adapter = dict[str, str]()
    if calls and calls[0].packed:
        adapter["adapter.py"], request["adapter"] = adapter_py(entry, inputs_of(calls)), f"adapter:{function}"
    own_files = {f"{folder}/{file}": text.encode() for file, text in adapter.items()}
    tell(f"running {entry} once, to see which kernels it launches")
    probe = _probed(files | own_files, Path(own.root), request, import_root, *[str(folder)] * bool(adapter))
    if (named := request["adapter"] or probe["entry"]) != entry:
        tell(f"{entry} is {named}, which the task names")
        entry = named
    defining = _committed(files, f"/{probe['path']}") or path
    kernels = [(_committed(files, file), frontend) for file, frontend in probe["kernels"]]
    frontend = next((language for file, language in kernels if file), "torch")
    editable = [file for file, language in kernels if file and language == frontend]
    editable = list(dict.fromkeys([*editable, defining]))
    for file in editable:
        own.need_own(PurePosixPath(file))
    head: dict[str, Any] = {
        "name": name,
        "entry": entry,
        "editable": [f"../../{file}" for file in editable],
        "python_path": [f"../../{import_root}" if import_root != "." else "../.."],
        "frontend": frontend,
    }
    if frontend != "torch" and not reference:
        if not calls:
            raise UsageError(
                f"{entry} launches kernels of {editable[0]}, which give no float64 reference: name the same function "
                "in plain torch with --reference module:function, or the tests that call it with --test FILE: then the "
                "function as it is now is the reference"
            )
        return by_baseline(files, head, calls, tests, adapter, tell)
    frozen = _committed(files, f"/{probe['reference_path']}")
    if frozen is None:
        raise UsageError(f"{reference or entry} is defined in {probe['reference_path']}, which is no committed file")
    if not calls:
        drawn = {
            name: Tensor(shape, probe["dtypes"][name], values={"fill": UNKNOWN} if name in dtypes else {})
            for name, shape in probe["shapes"].items()
        }
        calls = [Call(drawn, request["arguments"])]
    inputs = inputs_of(calls)
    for argument, tied in [*inputs.arguments.items()]:
        if isinstance(tied, dict):  # a dimension of a tensor, which the user named
            inputs.tied[argument] = inputs.shapes[tied["tensor"]][tied["axis"]]
            del inputs.arguments[argument]
    module = module_at(frozen, files)[0]
    beside = adapter | {
        "task.py": task_py(f"frozen.{reference.partition(':')[2] or function}", "import frozen", inputs),
        "frozen.py": frozen_copy(files[frozen], frozen, module),
    }
    seen = _seen(frozen, inputs, editable, frontend)
    if narrow := probe.get("narrow"):
        seen.append(
            f"but: called in float64 it returns {narrow}, so somewhere it casts: take the casts out of frozen.py, or "
            "the reference is no more precise than the function"
        )
    try:
        return completed(files, head, inputs, wishes.ranges, beside, seen, tell, tests if passed else [])
    except UsageError as error:
        raise UsageError(f"{error}{_alike(shapes, inputs.shapes)}") from None


def completed(
    files: Files,
    head: dict[str, Any],
    inputs: Inputs,
    ranges: list[str],
    beside: Mapping[str, str],
    seen: list[str],
    tell: Callable[[str], None],
    tests: Sequence[str] = (),
) -> Proposal:
    """The task with these first keys in its task.toml, and the files beside it: hidden ranges by trying, and checked as
    a session will. If a person has to fill something in, neither is done. Raises `UsageError` if the function does not
    pass."""
    given = ranges_of(ranges, inputs)
    proposal = Proposal(PurePosixPath("perf") / head["name"], "", seen, beside)
    if inputs.open:
        remark = f"No size was tried: {FILL_IN} marks what is open in task.py. Then add [[hidden]] with ranges"
        text = task_toml(head, inputs.cases, [], {}, [remark], tests)
        return checked(replace(proposal, text=text, is_open=True), files, head["frontend"], tell)
    dimensions = {
        name: Dimension(size, _is_head(name, size, inputs.shapes), name in inputs.empty, given.get(name))
        for name, size in inputs.sizes.items()
    }
    last = next((shape[-1] for shape in inputs.shapes.values() if shape), "")
    draft = replace(proposal, text=task_toml(head | {"timeout_s": 20.0}, inputs.cases, [], {}, []))
    limits = tried_out(draft.among(files), proposal.folder, dimensions, last, inputs.tests, tell)
    text = task_toml(head, limits.cases, limits.hidden, limits.excluded, limits.remarks, tests)
    found = replace(proposal, text=text, seen=[*proposal.seen, *limits.remarks])
    return checked(found, files, head["frontend"], tell)


def _alike(given: dict[str, list[int]], shapes: dict[str, list[str]]) -> str:
    """What to say of a failure if one unnamed shape went to several tensors."""
    common = given.get("", [])
    names = [name for name, dims in shapes.items() if name not in given and len(dims) == len(common) > 1]
    if len(names) < 2:
        return ""
    whole, last = "x".join(map(str, common)), common[-1]
    each = " ".join(f"--shape {name}={last if number else whole}" for number, name in enumerate(names))
    return f". --shape {whole} was given to {' and '.join(names)} alike. If they differ, name each: {each}"


def _is_head(name: str, size: int, shapes: Mapping[str, list[str]]) -> bool:
    return size in HEADS and any(len(dims) > 2 and dims[-1] == name for dims in shapes.values())


def _resolved(files: Files, target: str) -> tuple[str, str, str]:
    """The committed file of module:function or file.py:function, its entry point, and the folder to import it from. If
    there is no function, the entry point has none."""
    place, colon, function = target.partition(":")
    if place.endswith(".py"):
        path = place if place in files else None
        module = module_at(place, files)[0] if path else place
    else:
        module, path = place, module_path(place, files)
    if path is None:
        raise UsageError(
            f"{target}: no committed Python file is module {place}; write it as it is imported, as in mypkg.ops:gelu, "
            "and commit it first if it is new"
        )
    if colon and not function.isidentifier():
        raise UsageError(f"{target}: a function is written module:function{_such_as(files[path], module)}")
    inside = path.removesuffix(".py").removesuffix("/__init__").removesuffix(module.replace(".", "/"))
    return path, f"{module}:{function}", inside.strip("/") or "."


def _such_as(content: bytes, module: str) -> str:
    names = re.findall(r"^def ([^\W_]\w*)\(", content.decode("utf-8", "replace"), re.MULTILINE)
    return f", such as {', '.join(f'{module}:{name}' for name in names[-3:])}" if names else ""


def _committed(files: Files, path: str) -> str | None:
    """The committed file that a file of a copy is, by the end of its path."""
    fitting = [name for name in files if path.endswith(f"/{name}")]
    return max(fitting, key=len, default=None)


def _probed(files: Files, tree: Path, request: dict[str, Any], *import_roots: str) -> dict[str, Any]:
    words = ["python", "-m", "tilewright.attach.probe", json.dumps(request), "{out}"]
    ran, _, out = tried(files, tree, words, [*import_roots])
    if ran.status != 0 or not out:
        raise UsageError(f"{request['entry']} could not be run: the process {ran.ended}\n{ran.last_words[-1200:]}")
    answer: dict[str, Any] = json.loads(out)
    if "unusable" in answer:
        need_no_gpu(request["entry"], answer["unusable"])
        raise UsageError(f"{request['entry']}: {answer['unusable']}")
    return answer


def shapes_of(texts: list[str]) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Each tensor's shape, under the empty name that of all, and the dtypes that are given with them. Raises
    `UsageError` for one that is written otherwise."""
    shapes: dict[str, list[int]] = {}
    dtypes: dict[str, str] = {}
    for text in texts:
        match = re.fullmatch(r"(?:([^\W\d]\w*)=)?([1-9]\d*(?:x[1-9]\d*)*)(?::(\w+))?", text)
        if match is None:
            raise UsageError(
                f"--shape {text}: a shape is written 4096x8192 for all tensors, or x=4096x8192 for one; repeat "
                "--shape for others"
            )
        name = match[1] or ""
        if name in shapes:
            raise UsageError(f"--shape {text}: {name or 'all tensors'} has a shape already")
        shapes[name] = [int(size) for size in match[2].split("x")]
        if match[3]:
            dtypes[name] = _dtype(match[3], (*DRAWN, *OTHERS))
    return shapes, {name: dtype for name, dtype in dtypes.items() if name}


def ranges_of(texts: list[str], inputs: Inputs) -> dict[str, Draw]:
    """The user's hidden ranges by dimension. Raises `UsageError`."""
    ranges: dict[str, Draw] = {}
    for text in texts:
        name, _, numbers = text.partition("=")
        between = re.fullmatch(r"(\d+)\.\.(\d+)(?::([1-9]\d*))?", numbers)
        try:
            if between:
                ranges[name] = Draw(min=int(between[1]), max=int(between[2]), multiple_of=int(between[3] or 1))
            elif re.fullmatch(r"\d+(,\d+)*", numbers):
                ranges[name] = Draw(choices=[int(size) for size in numbers.split(",")])
            else:
                raise ValueError
        except ValueError:
            raise UsageError(
                f"--range {text}: a range is written N=64..128, N=64..128:32 for multiples, or N=64,128"
            ) from None
        if name not in inputs.sizes:
            known = "; ".join(f"{tensor} is {' x '.join(dims)}" for tensor, dims in inputs.shapes.items())
            raise UsageError(f"--range {text}: no dimension is called {name}: {known}")
    return ranges


def _dtype(text: str, known: tuple[str, ...] = DRAWN) -> str:
    dtype = SHORT.get(text, text)
    if dtype not in known:
        raise UsageError(
            f"inputs cannot be drawn in {dtype}: --dtype is one of {', '.join(sorted({*known, *SHORT}))}; integers "
            "and masks come with their shape, as in --shape labels=4096:int64"
        )
    return dtype


def argument_of(text: str) -> tuple[str, Any]:
    """An argument's name and its value; for a dimension of a tensor, as in c=x.1, a dict of `tensor` and `axis`. Raises
    `UsageError`."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"--arg {text}: an argument is written name=value, as in eps=1e-6, or c=x.1 for a dimension")
    if match := re.fullmatch(r"([^\W\d]\w*)\.(\d+)", value):
        return name, {"tensor": match[1], "axis": int(match[2])}
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
    if not isinstance(found, int | float | str | None):
        raise UsageError(f"--arg {text}: an argument is a number, a word, True, False or None")
    return name, found


def _seen(frozen: str, inputs: Inputs, editable: list[str], frontend: str) -> list[str]:
    shown = ", ".join(f"{name} ({' x '.join(dims)})" for name, dims in inputs.shapes.items())
    sizes = ", ".join(f"{dim}={size}" for dim, size in sorted(inputs.sizes.items()))
    lines = [
        f"inputs: {shown} in {inputs.cases[0]['dtype']}, with {sizes}",
        f"reference: {frozen} as it is now, in float64",
        f"editable: {', '.join(editable)}, in {frontend}",
    ]
    return [*lines, "a triton task's benchmark needs a GPU"] if frontend == "triton" else lines
