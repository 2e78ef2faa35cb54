"""Every link, file, tool, command, flag, variable and knob that a page names exists; what is ~~`struck`~~ does not."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import keyword
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import cuda.tile as ct
import cuda.tile.tune
import torch
import typer
from pydantic import BaseModel

from tests.pages.page import CODE, COMMENT, ROOT, Page, Problem, read
from tilewright import task
from tilewright.autotune import report as autotune_report
from tilewright.compiler.findings import Finding, Treatment
from tilewright.compiler.resources import Resources
from tilewright.compiler.tools import find_tool
from tilewright.evaluation.results import Status
from tilewright.policy import Reason
from tilewright.profile import diagnosis
from tilewright.session import reports

LINK = re.compile(r"\[[^\]\n]+\]\(([^)\s]+)\)")
SNAKE = re.compile(r"(?<![\w.\-/])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w\-/])")
KEYWORD = re.compile(r"(?<![\w.\-])([a-z]\w*)=(?!=)")
DOTTED = re.compile(r"(?<![\w.])(ct|torch)((?:\.[A-Za-z_]\w*)+)")
WORD = re.compile(r"[a-z][a-z0-9]*")
ATTRIBUTE = re.compile(r"(?<=[\w)\]])\.([a-z]\w*)|^\.([a-z]\w*)")
VARIABLE = re.compile(r"(?<![\w.])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?!\w)")
FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?|[\w-]+(?:\.[\w-]+)*\.(?:md|toml|json|py|gz|npz|png)")
EVIDENCE = ROOT / "benchmarks" / "evidence"
GENERATED = ("sandbox", "perf/", "path/", ".claude/", ".agents/", "refs/", "perf_results.md")

# What other programs call things. Sources: ncu's and nsys's manuals, Triton's documentation, README.md and
# PerformanceTuningTips.md of github.com/triton-lang/Triton-to-tile-IR, PyTorch's documentation.
ELSEWHERE = {
    "ncu": "--set --launch-skip --launch-count --kernel-name --clock-control --import --page --csv",
    "nsys": "--trace --output --report",
    "names": "num_warps num_stages warp_specialize cuda_gpu_kern_sum make_tensor_descriptor libdevice input_precision "
    "multi_processor_count num_worker_warps_per_cta",
    "words": "python pytest torch ex2 wgmma",
    "attributes": "constexpr dot num_programs program_id tile_experimental",
    "variables": "ENABLE_TILE CUTILE_ENABLE_APPROX CUTILE_ENABLE_FTZ TILEIR_ENABLE_APPROX TILEIR_ENABLE_FTZ "
    "TRITON_TILEIR_RUNTIME_FALLBACK DISABLE_AUTOTUNE BLOCK_SIZE",
}

ARGUMENTS = ["b", "causal", "dbias", "dweight", "gelu", "none", "rowsum", "weights"]
"""What pages call arguments and functions of kernels that they tell of without showing them, and rows of tables."""


@cache
def known() -> frozenset[str]:
    """Names of tools, their arguments and fields, task files, and of everything in cuda.tile."""
    from tilewright.tools import table

    found = {one.value for kind in (Treatment, Status, Reason) for one in kind} | set(ELSEWHERE["names"].split())
    for tool in table().values():
        found |= {tool.name, *_words(tool.params.model_json_schema())}
    for module in (reports, autotune_report, diagnosis):
        for model in vars(module).values():
            if inspect.isclass(model) and issubclass(model, BaseModel):
                found |= _words(model.model_json_schema())
    for model in vars(task).values():
        if inspect.isclass(model):
            found |= {*getattr(model, "model_fields", {}), *getattr(model, "__dataclass_fields__", {})}
    for place in (ct, cuda.tile.tune, ct.Array, ct.Tile, ct.TiledView, ct.kernel, ct.compilation):
        for name in dir(place):
            if not name.startswith("_"):
                found |= {name, *_parameters(getattr(place, name, None))}
    found |= set(ct.kernel(lambda: None)._compiler_options.__dataclass_fields__)
    found |= {*cuda.tile.tune.Measurement.__dataclass_fields__, *cuda.tile.tune.TuningResult.__dataclass_fields__}
    found |= {*Resources.model_fields, *Finding.model_fields, "make_inputs", "exhaustive_search"}
    return frozenset(found)


def _words(schema: Any) -> set[str]:
    """The names of properties and the choices that a JSON schema holds."""
    if isinstance(schema, list):
        return set().union(*map(_words, schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    found = {*schema.get("properties", {})} | {one for one in schema.get("enum", []) if isinstance(one, str)}
    return found.union(*(_words(value) for value in schema.values()))


def _parameters(function: Any) -> set[str]:
    try:
        return {*inspect.signature(function).parameters}
    except (TypeError, ValueError):
        return set()


@cache
def _sources() -> str:
    """All that cuda.tile and this package are written in, to look variables up."""
    places = [Path(ct.__file__).parent, ROOT / "server"]
    files = [path for place in places for path in (*place.rglob("*.py"), *place.rglob("*.j2"), *place.rglob("*.so"))]
    return "\n".join(path.read_bytes().decode("latin-1") for path in files)


@cache
def _flags(program: str) -> set[str]:
    if program == "tileiras":
        said = subprocess.run([str(find_tool("tileiras")), "--help"], capture_output=True, text=True, check=True).stdout
        return {*re.findall(r"--[\w-]+", said)}
    return set(ELSEWHERE[program].split())


@cache
def _command() -> Any:
    from tilewright.interface.commands import app

    return typer.main.get_command(app)


def check(page: Page, words: bool = True) -> tuple[int, list[Problem]]:
    """How many links the page has, and what it names that is not there.

    Without `words` only links and commands are looked at: a page for people names its reader's own functions too.
    """
    problems, links = [], 0
    local = _identifiers(page)
    for block in page.blocks:
        for target in LINK.findall(COMMENT.sub("", block.text)):
            links += 1
            if complaint := _broken(page, target):
                problems.append(page.problem(block.line, complaint))
        for before, code, after in CODE.findall(block.text):
            wrong = _unknown(code, local, page.path.parent) if words else _in_command(code)
            if before and after:
                if not wrong:
                    problems.append(page.problem(block.line, f"`{code}` is struck out, and exists"))
            else:
                problems += [page.problem(block.line, complaint) for complaint in wrong]
    for fence in page.fences:
        if words and fence.language not in ("console", "python", "diff", ""):
            problems.append(page.problem(fence.line, f"nothing checks a block of {fence.language}"))
        if fence.language == "console":
            for line in fence.text.splitlines():
                problems += [page.problem(fence.line, text) for text in _in_command(line.removeprefix("$ "))]
    return links, problems


def _broken(page: Page, target: str) -> str:
    if "://" in target:
        return ""
    path, _, anchor = target.partition("#")
    linked = (page.path.parent / path).resolve() if path else page.path
    if not linked.is_file():
        return f"the link to {target} leads nowhere"
    if anchor and anchor not in read(linked).anchors:
        return f"the link to {target} names no heading of that page"
    return ""


def _unknown(code: str, local: frozenset[str], folder: Path) -> list[str]:
    """What is wrong with a span of code on a page in `folder`."""
    wrong = _in_command(code)
    if wrong or re.match(r"(tilewright|python|ncu|nsys|tileiras|git|pip|npx|claude|codex) ", code):
        return wrong
    if FILE.fullmatch(code) and not re.fullmatch(r"[A-Z]{1,3}(/[A-Z]{1,3})+|ct\.\w+", code):
        there = any((place / code).exists() for place in (folder, ROOT, ROOT / "server" / "tilewright", EVIDENCE))
        there = there or any(ROOT.glob(f"*/*/*/{code}")) or any(ROOT.glob(f"references/{code}"))
        return [] if there or code.startswith(GENERATED) else [f"there is no file `{code}`"]
    for root, rest in DOTTED.findall(code):
        place: Any = ct if root == "ct" else torch
        for name in rest.split(".")[1:]:
            if not hasattr(place, name) and name not in ("item",):
                wrong.append(f"`{root}{rest}` does not exist")
                break
            place = getattr(place, name, None)
    for module in re.findall(r"(?<![\w.])cuda(?:\.\w+)+", code):
        if not _resolves(module):
            wrong.append(f"`{module}` does not exist")
    words = {*SNAKE.findall(DOTTED.sub("", code)), *KEYWORD.findall(code)}
    if WORD.fullmatch(code) and code not in _plain_words():
        words.add(code)
    wrong += [f"`{code}`: nothing has a `.{name}`" for name in _attributes(code) - known() - local - _tensors()]
    architectures = {word for word in words if re.fullmatch(r"sm_\d+", word)}
    wrong += [f"`{word}` is no architecture of tileiras" for word in architectures if word not in _architectures()]
    strange = words - architectures - known() - local
    wrong += [f"`{word}` is no name of a tool, a parameter or a function" for word in strange]
    for word in VARIABLE.findall(DOTTED.sub("", code)):
        if word not in local and word not in ELSEWHERE["variables"].split() and word not in _sources():
            wrong.append(f"`{word}` is no variable that anything reads")
    return wrong


def _attributes(code: str) -> set[str]:
    """The attributes that a span of code asks of anything but a module, a file or an instruction."""
    if FILE.fullmatch(code) or re.search(r"\.(py|async)\b", code):
        return set()
    plain = re.sub(r"(?<![\w.])cuda(?:\.\w+)+", "", DOTTED.sub("", code))
    return {first or last for first, last in ATTRIBUTE.findall(plain)}


@cache
def _plain_words() -> frozenset[str]:
    """Words that mean something without being a tool's or a kernel's name."""
    python = [*keyword.kwlist, *dir(builtins), *sys.stdlib_module_names]
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = [name for file in listed.splitlines() for name in file.split("/")[1:-1]]
    kinds = ["computed", "published", *(one.value for one in task.Values)]
    return frozenset([*python, *folders, *kinds, *ELSEWHERE["words"].split(), *ARGUMENTS, *_command().commands])


@cache
def _tensors() -> frozenset[str]:
    """What torch's tensors and other programs' objects have."""
    return frozenset([*dir(torch.Tensor), *ELSEWHERE["attributes"].split()])


@cache
def _resolves(dotted: str) -> bool:
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        with contextlib.suppress(ImportError):
            place: Any = importlib.import_module(".".join(parts[:end]))
            return all(hasattr(place, name) and (place := getattr(place, name)) is not None for name in parts[end:])
    return False


@cache
def _architectures() -> frozenset[str]:
    said = subprocess.run([str(find_tool("tileiras")), "--help"], capture_output=True, text=True, check=True).stdout
    return frozenset(re.findall(r"=(sm_\d+)", said))


def _in_command(line: str) -> list[str]:
    """What is wrong with a command line; nothing for programs that are not looked at."""
    program, *words = line.split() or [""]
    if program == "python" and words:
        named = words[0] == "-m" and len(words) > 1
        module = words[1].replace(".", "/") if named else words[0]
        if module.startswith("-") or (named and module.partition("/")[0] not in ("tests", "benchmarks", "tilewright")):
            return []
        ways = [module, f"{module}.py", f"{module}/__main__.py"] if named else [module]
        there = any((ROOT / place / way).is_file() for place in ("", "server") for way in ways)
        return [] if there or "/" not in module else [f"there is no {module}{'.py' * named} to run"]
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    if program in ("tileiras", "ncu", "nsys"):
        end = next((i for i, word in enumerate(words) if word in ("python", "tilewright")), len(words))
        flags = [word.partition("=")[0] for word in words[:end] if word.startswith("--")]
        return [f"{program} has no {flag}" for flag in flags if flag not in _flags(program)]
    if program != "tilewright" or not words:
        return []
    place = _command()
    for word in words:
        if hasattr(place, "commands") and re.fullmatch(r"[a-z][a-z-]*", word):
            if word not in place.commands:
                return [f"`tilewright {word}` is no command"]
            place = place.commands[word]
    options = {option for parameter in place.params for option in parameter.opts} | {"--help"}
    return [f"`tilewright {place.name}` has no {flag}" for flag in flags if flag not in options]


def _identifiers(page: Page) -> frozenset[str]:
    """What the page's own Python blocks define and use, and what it takes from other pages."""
    found: set[str] = {*page.borrowed}
    for fence in page.fences:
        if fence.language == "python":
            for node in ast.walk(ast.parse(fence.text)):
                found |= {getattr(node, field) for field in ("id", "arg", "name", "attr") if getattr(node, field, None)}
    return frozenset(str(one) for one in found)
