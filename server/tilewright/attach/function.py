"""A native task around one function: a frozen copy in float64 is the reference, the signature gives the inputs."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tilewright.attach.finding import Source, read_sources
from tilewright.attach.following import kernels_of
from tilewright.attach.limits import LIMIT_S, confirmed, probed, tried_out
from tilewright.attach.repository import Proposal, committed, named_after, need_name, need_own
from tilewright.attach.trial import Trial
from tilewright.attach.writing import frozen_copy, task_py, task_toml
from tilewright.errors import UsageError
from tilewright.repository import Files
from tilewright.task import parse_task

LISTED = 12
CASES = 4
"""Taken at most from the tests' calls, the largest first."""
DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "fp32": "float32",
    "f32": "float32",
    "half": "float16",
    "fp8": "float8_e4m3fn",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}
DRAWN = ("bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2")
"""What normal numbers are rounded to, and a float64 reference can judge."""


def propose(
    root: Path,
    entry: str,
    shapes: list[str],
    dtype: str,
    arguments: list[str],
    reference: str,
    name: str,
    test: str,
    tell: Callable[[str], None],
) -> tuple[Proposal, dict[str, str]]:
    """A native task for `entry`, written module:function, and the other files of its folder by name.

    `shapes` are written 4096x8192 for all tensors, or x=4096x8192; `arguments` eps=1e-6. With `test`, a file of tests,
    both and the dtype are taken from the calls that its tests make. Raises `UsageError`.
    """
    need_name(name)
    repository, files = committed(root)
    sources = read_sources(files)
    module, _, function = entry.partition(":")
    source = next((one for one in sources.values() if one.module == module), None)
    if source is None:
        if source := sources.get(module):
            raise UsageError(f"{module} is a file: write {source.module}:{function}")
        raise UsageError(
            f"no committed Python file is module {module}; write it as it is imported: mypkg.ops:gelu, and commit it "
            "first if it is new"
        )
    if not all(part.isidentifier() for part in function.split(".")) or "." in function:
        raise UsageError(f"{entry}: a function is written module:function{_one_of(source)}")
    if function in source.kernels:
        raise UsageError(f"{entry} is a kernel: name the function that launches it{_one_of(source)}")
    given = reference.partition(":")[0]
    if reference and not any(one.module == given for one in sources.values()):
        raise UsageError(
            f"--reference {reference}: no committed Python file is module {given}; write it as it is imported, and "
            "commit it first if it is new"
        )
    import_root = source.path.removesuffix(".py").removesuffix("/__init__").removesuffix(module.replace(".", "/"))
    import_root = import_root.strip("/") or "."
    dtype = DTYPES.get(dtype, dtype)
    if dtype not in DRAWN:
        raise UsageError(f"inputs cannot be drawn in {dtype}: --dtype is one of {', '.join(sorted({*DRAWN, *DTYPES}))}")
    called_with = dict(map(_argument, arguments))
    request: dict[str, Any] = {
        "entry": entry,
        "reference": reference,
        "shapes": shapes_of(shapes),
        "arguments": called_with,
    }
    calls: list[Call] = []
    with Trial(files, Path(repository.root)) as trial:
        made = _made_of(trial, entry, source, sources, files, import_root)
        for path in made.editable:
            need_own(repository, path, entry)
        if made.entry != entry:
            tell(f"{entry} is {made.entry}, which the task names")
            entry = request["entry"] = made.entry
        if made.frontend != "torch" and not reference:
            raise UsageError(
                f"{entry} launches kernels of {made.editable[0]}, which give no float64 reference: name the same "
                "function in plain torch with --reference module:function"
            )
        if test:
            tell(f"running {test} to see what it calls {function} with")
            calls = _calls(trial, entry, test, import_root)
            called_with, dtype = calls[0].values, calls[0].dtype
            request |= {"shapes": calls[0].shapes, "arguments": called_with}
        tell(f"trying {entry} on the CPU, in float64")
        found = probed(trial, request, import_root)
    name = name or named_after(function)
    frozen_from = _source_at(found["reference_path"], sources)
    if frozen_from is None:
        raise UsageError(f"{reference or entry} is defined in {found['reference_path']}, which is no committed file")
    if reference and frozen_from.path in made.editable:
        tell(f"{frozen_from.path} holds the reference as well: it is copied, and what it imports has to stay as it is")
    frozen = (reference or entry).partition(":")[2]
    beside = {
        "task.py": task_py(frozen, found["shapes"], called_with),
        "frozen.py": frozen_copy(files[frozen_from.path], frozen_from.path, frozen_from.module),
    }
    folder = PurePosixPath("perf") / name
    head = {
        "name": name,
        "entry": entry,
        "editable": [f"../../{path}" for path in made.editable],
        "python_path": [f"../../{import_root}" if import_root != "." else "../.."],
        "frontend": made.frontend,
    }
    cases = [found["sizes"] | {"dtype": dtype}, *_further(calls, found["shapes"])]
    draft = {"task.toml": task_toml(head, cases, [], {}, [])} | beside
    parse_task(draft["task.toml"], Path("task.toml"))
    with Trial(files | _placed(folder, draft), Path(repository.root)) as trial:
        alike = _alike(request["shapes"], found["shapes"])
        limits = tried_out(trial, entry, str(folder), found, dtype, import_root, alike, tell)
    text = task_toml(head, [*cases, *limits.cases], limits.hidden, limits.excluded, limits.remarks)
    parse_task(text, Path("task.toml"))
    tell("checking the function as a session will")
    judged = confirmed(files | _placed(folder, {"task.toml": text} | beside), folder)
    remarks = [*limits.remarks, *judged]
    text = task_toml(head, [*cases, *limits.cases], limits.hidden, limits.excluded, remarks)
    seen = [*_seen(frozen_from.path, dtype, made, found), *remarks]
    return Proposal(folder, text, seen, failed=limits.failed), beside


def _alike(given: dict[str, list[int]], shapes: dict[str, list[str]]) -> str:
    """What to say of a failure where one unnamed shape went to several tensors; empty where none did."""
    common = given.get("", [])
    names = [name for name, dims in shapes.items() if name not in given and len(dims) == len(common) > 1]
    if len(names) < 2:
        return ""
    whole, last = "x".join(map(str, common)), common[-1]
    each = " ".join(f"--shape {name}={last if number else whole}" for number, name in enumerate(names))
    return f". --shape {whole} was given to {' and '.join(names)} alike. If they differ, name each: {each}"


def _placed(folder: PurePosixPath, texts: dict[str, str]) -> Files:
    return {f"{folder}/{file}": text.encode() for file, text in texts.items()}


def functions_of(root: Path, target: str) -> UsageError:
    """What to name instead of `target`, which is neither a folder nor module:function: the functions of the module or
    package that it is."""
    _, files = committed(root)
    sources = read_sources(files)
    inside = [one for one in sources.values() if target in (one.module, one.path)]
    inside += [one for one in sources.values() if one.module.startswith(f"{target}.")]
    entries = [f"{one.module}:{name}" for one in inside for name in one.entries]
    if not inside:
        return UsageError(
            f"{target} is no folder and no module that is committed here: give a repository's folder, or a function as "
            "module:function"
        )
    if not entries:
        return UsageError(f"{target} is a module: name a function of it, as in {inside[0].module}:function")
    more = f"\n  and {len(entries) - LISTED} more" if len(entries) > LISTED else ""
    listed = "".join(f"\n  tilewright init {entry}" for entry in entries[:LISTED])
    return UsageError(f"{target} is a module: name a function of it. These launch kernels:{listed}{more}")


def _one_of(source: Source) -> str:
    return f", such as {', '.join(f'{source.module}:{name}' for name in source.entries[-3:])}" if source.entries else ""


class Made(NamedTuple):
    """What a function is made of: the files to edit, those with kernels first, and the frontend of the kernels."""

    entry: str
    """As the module that defines the function has it; as asked for where none has this very one."""
    editable: list[str]
    frontend: str
    left: list[str]
    """Files with kernels of other frontends, which the function reaches too."""


def _made_of(
    trial: Trial, entry: str, source: Source, sources: dict[str, Source], files: Files, import_root: str
) -> Made:
    """Where the entry's function is defined, by importing it, and which kernels it launches, by its source."""
    found = probed(trial, {"entry": entry, "locate": True}, import_root)
    defining = _source_at(found["path"], sources) or source
    modules = {one.module: one.path for one in sources.values()}
    kernels = kernels_of(files, modules, defining.path, found["function"])
    frontend = kernels[0].frontend if kernels else "torch"
    own = list(dict.fromkeys(kernel.path for kernel in kernels if kernel.frontend == frontend))
    left = {kernel.path for kernel in kernels} - {*own, defining.path}
    there = f"{defining.module}:{found['function']}" if found["itself"] else entry
    return Made(there, list(dict.fromkeys([*own, defining.path])), frontend, sorted(left))


def _source_at(path: str, sources: dict[str, Source]) -> Source | None:
    """The committed file that a file of a copy is, by the end of its path."""
    fitting = [one for one in sources.values() if path.endswith(f"/{one.path}")]
    return max(fitting, key=lambda one: len(one.path), default=None)


class Call(NamedTuple):
    """What a test called the function with: the shape of each tensor, their dtype, and the other arguments."""

    shapes: dict[str, list[int]]
    dtype: str
    values: dict[str, Any]

    @property
    def elements(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())


def _calls(trial: Trial, entry: str, test: str, import_root: str) -> list[Call]:
    """The calls that tests make which a native task can repeat, the largest first. Raises `UsageError` for none."""
    options = ["--tilewright-calls-of", entry, "--tilewright-calls-into", "{out}"]
    words = ["python", "-m", "pytest", "-p", "tilewright.attach.capture", test, *options]
    tried = trial.run(words, [import_root], LIMIT_S)
    if not tried.out:
        raise UsageError(f"the tests: the command {tried.ran.ended}\n{tried.ran.last_words[-1200:]}")
    noted: list[dict[str, Any]] = json.loads(tried.out)
    if not noted:
        said = next(reversed(tried.ran.last_words.strip().splitlines()), "").strip("= ")
        raise UsageError(
            f"no test of {test} that ran calls {entry} by that name ({said}): give --shape instead, or another --test"
        )
    found, why = [], ""
    for call in noted:
        dtypes = sorted({tensor["dtype"] for tensor in call["tensors"].values()})
        shapes = {name: tensor["shape"] for name, tensor in call["tensors"].items()}
        if call["others"]:
            name, kind = next(iter(call["others"].items()))
            why = f"argument {name} is a {kind}"
        elif len(dtypes) != 1 or "float" not in dtypes[0]:
            why = f"its tensors are {' and '.join(dtypes) or 'none'}: those of one floating-point dtype can be drawn"
        elif not all(shape and all(shape) for shape in shapes.values()):
            why = "a tensor is empty, or has no dimension"
        else:
            found.append(Call(shapes, dtypes[0], call["values"]))
    if not found:
        raise UsageError(f"no call that {test} makes can be drawn anew ({why}): give --shape and --arg instead")
    return sorted(found, key=lambda call: -call.elements)


def _further(calls: list[Call], names: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Cases of the calls that differ from the first in sizes and dtype alone."""
    found: list[dict[str, Any]] = []
    for call in calls:
        if call.shapes.keys() != names.keys() or call.values != calls[0].values:
            continue
        sizes: dict[str, Any] = {"dtype": call.dtype}
        fits = all(
            len(dims) == len(call.shapes[tensor])
            and all(sizes.setdefault(dim, size) == size for dim, size in zip(dims, call.shapes[tensor], strict=True))
            for tensor, dims in names.items()
        )
        if fits and sizes not in found:
            found.append(sizes)
    return found[1:CASES]


def shapes_of(texts: list[str]) -> dict[str, list[int]]:
    """Each tensor's shape; under the empty name that of all. Raises `UsageError` for one that is written otherwise."""
    found: dict[str, list[int]] = {}
    for text in texts:
        for part in re.split(r"[,;\s]+(?=[^\W\d]\w*\s*=)", text.strip()):
            name, equals, sizes = (piece.strip() for piece in part.rpartition("="))
            inside = re.fullmatch(r"\[([^][()]*)\]|\(([^][()]*)\)|([^][()]*)", sizes)
            numbers = next((piece for piece in inside.groups() if piece is not None), "") if inside else ""
            numbers = re.sub(r"\s*[x×*,\s]\s*", ",", numbers.strip().removesuffix(","))
            if not re.fullmatch(r"[1-9][0-9]*(,[1-9][0-9]*)*", numbers) or (equals and not name.isidentifier()):
                raise UsageError(
                    f"--shape {text}: a shape is written 4096x8192 for all tensors, or x=4096x8192 for one; repeat "
                    "--shape for others"
                )
            if name in found:
                raise UsageError(f"--shape {text}: {name or 'all tensors'} has a shape already")
            found[name] = [int(size) for size in numbers.split(",")]
    return found


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"--arg {text}: an argument is written name=value, as in eps=1e-6")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _seen(frozen: str, dtype: str, made: Made, found: dict[str, Any]) -> list[str]:
    shown = ", ".join(f"{name} ({' x '.join(dims)})" for name, dims in found["shapes"].items())
    sizes = ", ".join(f"{dim}={size}" for dim, size in sorted(found["sizes"].items()))
    lines = [f"inputs: {shown} in {dtype}, with {sizes}", f"reference: {frozen} as it is now, in float64"]
    lines.append(f"editable: {', '.join(made.editable)}, in {made.frontend}")
    if made.left:
        lines.append(f"but: it reaches kernels of another frontend too, which stay as they are: {', '.join(made.left)}")
    if found["narrow"]:
        lines.append(
            f"but: called in float64 it returns {found['narrow']}, so somewhere it casts: take the casts out of "
            "frozen.py, or the reference is no more precise than the function"
        )
    if made.frontend == "triton":
        lines.append("a triton task's benchmark needs a GPU")
    return [
        *lines,
        "the inputs are normally distributed: where the function wants others, edit make_inputs; values that it is not "
        "made for (zeros, large ones) can be left out with [values]; [tolerance] replaces what follows from the dtype",
    ]
