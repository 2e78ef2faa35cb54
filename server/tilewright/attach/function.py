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
from tilewright.attach.reading import quoted
from tilewright.attach.repository import Proposal
from tilewright.attach.trial import Trial
from tilewright.repository import Files, Repository, RepositoryError
from tilewright.session.checkout import Misuse
from tilewright.task import parse_task

LIMIT_S = 300.0
CASES = 4
"""Taken at most from the tests' calls, the largest first."""
DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "fp32": "float32",
    "f32": "float32",
    "half": "float16",
}
DRAWN = ("bfloat16", "float16", "float32")
"""What torch.randn draws and a float64 reference can judge."""


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
    both and the dtype are taken from the calls that its tests make. Raises `Misuse`.
    """
    try:
        repository = Repository(root)
        files = repository.whole(repository.head())
    except RepositoryError as error:
        raise Misuse(str(error)) from None
    sources = read_sources(files)
    module, _, function = entry.partition(":")
    source = next((one for one in sources.values() if one.module == module), None)
    if source is None:
        raise Misuse(
            f"no committed Python file is module {module}; write it as it is imported: mypkg.ops:gelu, and commit it "
            "first if it is new"
        )
    given = reference.partition(":")[0]
    if reference and not any(one.module == given for one in sources.values()):
        raise Misuse(
            f"--reference {reference}: no committed Python file is module {given}; write it as it is imported, and "
            "commit it first if it is new"
        )
    import_root = source.path.removesuffix(".py").removesuffix("/__init__").removesuffix(module.replace(".", "/"))
    import_root = import_root.strip("/") or "."
    dtype = DTYPES.get(dtype, dtype)
    if dtype not in DRAWN:
        raise Misuse(f"inputs cannot be drawn in {dtype}: --dtype is one of {', '.join(sorted({*DRAWN, *DTYPES}))}")
    called_with = dict(map(_argument, arguments))
    request = {
        "entry": entry,
        "reference": reference,
        "shapes": dict(map(_shape, shapes)),
        "arguments": called_with,
    }
    calls: list[Call] = []
    with Trial(files, Path(repository.root)) as trial:
        made = _made_of(trial, entry, source, sources, files, import_root)
        if made.entry != entry:
            tell(f"{entry} is {made.entry}, which the task names")
            entry = request["entry"] = made.entry
        if made.frontend != "torch" and not reference:
            raise Misuse(
                f"{entry} launches kernels of {made.editable[0]}, which give no float64 reference: name the same "
                "function in plain torch with --reference module:function"
            )
        if test:
            tell(f"running {test} to see what it calls {function} with")
            calls = _calls(trial, entry, test, import_root)
            called_with, dtype = calls[0].values, calls[0].dtype
            request |= {"shapes": calls[0].shapes, "arguments": called_with}
        tell(f"trying {entry} on the CPU, in float64")
        found = _probed(trial, request, import_root)
    name = name or re.sub(r"[^a-z0-9_-]", "_", function.casefold()).strip("_-")
    frozen_from = _source_at(found["reference_path"], sources)
    if frozen_from is None:
        raise Misuse(f"{reference or entry} is defined in {found['reference_path']}, which is no committed file")
    if reference and frozen_from.path in made.editable:
        tell(f"{frozen_from.path} holds the reference as well: it is copied, and what it imports has to stay as it is")
    frozen = (reference or entry).partition(":")[2]
    beside = {
        "task.py": _task_py(frozen, found["shapes"], called_with),
        "frozen.py": _frozen(files[frozen_from.path], frozen_from.path, frozen_from.module),
    }
    folder = PurePosixPath("perf") / name
    cases = [found["sizes"] | {"dtype": dtype}, *_further(calls, found["shapes"])]
    text = _toml(name, entry, made, import_root, cases, found)
    parse_task(text, Path("task.toml"))
    return Proposal(folder, text, _seen(frozen_from.path, dtype, made, found)), beside


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
    found = _probed(trial, {"entry": entry, "locate": True}, import_root)
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


def _probed(trial: Trial, request: dict[str, Any], import_root: str) -> dict[str, Any]:
    """What the probe finds out. Raises `Misuse` where it cannot."""
    words = ["python", "-m", "tilewright.attach.probe", json.dumps(request), "{out}"]
    tried = trial.run(words, [import_root], LIMIT_S)
    if tried.ran.status != 0 or not tried.out:
        ended = f"the process {tried.ran.ended}\n{tried.ran.last_words[-1200:]}"
        raise Misuse(f"{request['entry']} could not be tried: {ended}")
    found: dict[str, Any] = json.loads(tried.out)
    if "unusable" in found:
        raise Misuse(f"{request['entry']}: {found['unusable']}")
    return found


class Call(NamedTuple):
    """What a test called the function with: the shape of each tensor, their dtype, and the other arguments."""

    shapes: dict[str, list[int]]
    dtype: str
    values: dict[str, Any]

    @property
    def elements(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())


def _calls(trial: Trial, entry: str, test: str, import_root: str) -> list[Call]:
    """The calls that tests make which a native task can repeat, the largest first. Raises `Misuse` for none."""
    options = ["--tilewright-calls-of", entry, "--tilewright-calls-into", "{out}"]
    words = ["python", "-m", "pytest", "-p", "tilewright.attach.capture", test, *options]
    tried = trial.run(words, [import_root], LIMIT_S)
    if not tried.out:
        raise Misuse(f"the tests: the command {tried.ran.ended}\n{tried.ran.last_words[-1200:]}")
    noted: list[dict[str, Any]] = json.loads(tried.out)
    if not noted:
        said = next(reversed(tried.ran.last_words.strip().splitlines()), "").strip("= ")
        raise Misuse(
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
        raise Misuse(f"no call that {test} makes can be drawn anew ({why}): give --shape and --arg instead")
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


def _shape(text: str) -> tuple[str, list[int]]:
    name, equals, sizes = text.rpartition("=")
    if not re.fullmatch(r"[1-9]\d*([x,][1-9]\d*)*", sizes) or (equals and not name.isidentifier()):
        raise Misuse(f"--shape {text}: a shape is written 4096x8192 for all tensors, or x=4096x8192 for one")
    return name, [int(size) for size in re.split("[x,]", sizes)]


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise Misuse(f"--arg {text}: an argument is written name=value, as in eps=1e-6")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _frozen(content: bytes, path: str, module: str) -> str:
    """The module's source with its relative imports spelt out, so that it can be imported from another folder."""
    text = content.decode("utf-8")
    package = module if path.endswith("/__init__.py") else module.rpartition(".")[0]
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
            origin = ".".join(filter(None, (base, node.module or "")))
            line = lines[node.lineno - 1]
            lines[node.lineno - 1] = re.sub(r"from\s+\.+\s*[\w.]*\s+import", f"from {origin} import", line, count=1)
    said = f"# A copy of {path} as `tilewright init` found it: the reference. It stays as it is.\n"
    return said + "".join(lines)


def _toml(
    name: str,
    entry: str,
    made: Made,
    import_root: str,
    cases: list[dict[str, Any]],
    found: dict[str, Any],
) -> str:
    def table(case: dict[str, Any]) -> str:
        lines = "\n".join(f"{key} = {quoted(value)}" for key, value in sorted(case.items()))
        return f"[[cases]]\n{lines}\n"

    common = "\n".join(map(table, cases))
    smaller = [found["small"], *([found["long"]] if found["long"] else [])]
    of_cpu = "\n".join(table({"backend": "cpu"} | sizes | {"dtype": cases[0]["dtype"]}) for sizes in smaller)
    hidden = "\n".join(f"{dim} = {{ min = 1, max = {found['sizes'][dim]} }}" for dim in sorted(found["hidden"]))
    small = "\n".join(f"{dim} = {{ min = 1, max = {found['small'][dim]} }}" for dim in sorted(found["hidden"]))
    ranges = f'\n[[hidden]]\n{hidden}\n\n[[hidden]]\nbackend = "cpu"\n{small}\n' if hidden else ""
    return f"""# Written by `tilewright init`.
name = {quoted(name)}
entry = {quoted(entry)}
editable = {quoted([f"../../{path}" for path in made.editable])}
python_path = [{quoted(f"../../{import_root}" if import_root != "." else "../..")}]
frontend = {quoted(made.frontend)}

{common}
{of_cpu}{ranges}"""


def _task_py(function: str, shapes: dict[str, list[str]], arguments: dict[str, Any]) -> str:
    return f'''"""Inputs, reference and work: the reference is a frozen copy of the function, called in float64."""

import torch
from frozen import {function}
from torch.utils.flop_counter import FlopCounterMode

from tilewright.task import Work

SHAPES = {shapes!r}
ARGUMENTS = {arguments!r}


def make_inputs(case, generator):
    dtype = getattr(torch, case["dtype"])
    drawn = {{
        name: torch.randn([case[dim] for dim in dims], generator=generator, device=generator.device, dtype=dtype)
        for name, dims in SHAPES.items()
    }}
    return drawn | ARGUMENTS


def reference(**inputs):
    return {function}(**inputs)


def work(case):
    """Each input read once, each output written once; flops of products, or one for each element."""
    dtype = getattr(torch, case["dtype"])
    tensors = {{
        name: torch.empty([case[dim] for dim in dims], dtype=dtype, device="meta") for name, dims in SHAPES.items()
    }}
    with FlopCounterMode(display=False) as counted:
        made = {function}(**tensors, **ARGUMENTS)
    tensors_in_and_out = [*tensors.values(), *(made if isinstance(made, tuple | list) else [made])]
    elements = sum(one.numel() for one in tensors_in_and_out)
    flops = counted.get_total_flops()
    return Work(
        bytes=sum(one.numel() * one.element_size() for one in tensors_in_and_out),
        flops=flops or elements,
        dtype=case["dtype"] if flops else "float32",
    )
'''


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
    fixed = [dim for dim in found["sizes"] if dim not in found["hidden"]]
    if fixed:
        lines.append(f"no hidden sizes for {', '.join(fixed)}: the reference fails on odd ones; give ranges by hand")
    if made.frontend == "triton":
        lines.append("a triton task's benchmark needs a GPU")
    return [
        *lines,
        "the inputs are normally distributed: where the function wants others, edit make_inputs; values that it is not "
        "made for (zeros, large ones) can be left out with [values]; [tolerance] replaces what follows from the dtype",
    ]
