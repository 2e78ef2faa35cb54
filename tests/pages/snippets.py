"""Every Python block of a page is run: its kernels compute their reference in the interpreter, and compile.

What compiled once is remembered in a folder among the temporary files, by the hash of all that it was made of.

The blocks of a page make one module, each at its own lines, behind PRELUDE. The comment after a block says how it is
run: Python, in which `normal`, `empty`, `launch` and `same` are known, as is all that the page defines.
    <!-- run: x = normal(5, 100); same(x.softmax(1), launch(before, 5, x, empty(x)), launch(after, 5, x, empty(x))) -->
    <!-- run sm_100: ... -->              compiled for these architectures only
    <!-- refused "is not a power of two": ... -->      has to raise, with these words
What a page takes from another page's blocks, it says by a line of its own:
    <!-- with before, after of playbook-bytes.md -->
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cuda.tile as ct
import cuda.tile.tune
import torch

from tests.pages.page import Page, Problem, pages, read
from tilewright.compiler.cutile import lower
from tilewright.compiler.tools import compiler_version, find_tool
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host

ARCHS = ("sm_80", "sm_90", "sm_100", "sm_120")
PRELUDE = (
    "import math, os; from types import SimpleNamespace; import torch; import cuda.tile as ct; "
    "Size = ct.Constant[int]; Flag = ct.Constant[bool]; ZERO = ct.PaddingMode.ZERO; NEG_INF = ct.PaddingMode.NEG_INF"
)
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 4e-3}
REAL_SEARCH = cuda.tile.tune.exhaustive_search
SEARCHED: dict[int, host.Launch] = {}
"""Launches of configs in a search: one architecture will do for them."""


@dataclass
class Run:
    """What a page's blocks did."""

    blocks: int = 0
    kernels: set[str] = field(default_factory=set)
    compiles: int = 0
    problems: list[Problem] = field(default_factory=list)


class Bench:
    """What the comments can call. Results of `launch` have to reach `same`."""

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(7)
        self.compared = 0
        self.open: dict[int, str] = {}
        self._fresh: list[torch.Tensor] = []
        self._held: list[torch.Tensor] = []  # so that no id comes again

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=self._generator).to(dtype)

    def empty(self, like: torch.Tensor | tuple[int, ...], dtype: torch.dtype | None = None) -> torch.Tensor:
        shape = tuple(like.shape) if isinstance(like, torch.Tensor) else like
        made = torch.empty(shape, dtype=dtype or (like.dtype if isinstance(like, torch.Tensor) else torch.float32))
        self._fresh.append(made)
        return made

    def launch(self, kernel: Any, grid: Any, *arguments: Any) -> Any:
        """Launch; gives back the tensors that `empty` made."""
        ct.launch(torch.cuda.current_stream(), grid if isinstance(grid, tuple) else (grid,), kernel, arguments)
        for one in arguments:
            self.open.pop(id(one), None)  # what the next kernel reads is compared with its result
        made = [one for one in arguments if any(one is fresh for fresh in self._fresh)]
        self._fresh = [one for one in self._fresh if not any(one is seen for seen in made)]
        self._held += made
        self.open |= {id(one): kernel._pyfunc.__name__ for one in made}
        return made[0] if len(made) == 1 else tuple(made)

    def same(self, reference: torch.Tensor, *results: torch.Tensor, tol: float | None = None) -> None:
        assert results, "same() wants a reference and at least one result"
        for result in results:
            limit = tol or TOLERANCE.get(result.dtype, 3e-2)
            wanted = reference.double() if result.is_floating_point() else reference.to(result.dtype)
            made = result.double() if result.is_floating_point() else result
            torch.testing.assert_close(made, wanted, atol=limit, rtol=limit)
            self.open.pop(id(result), None)
            self.compared += 1


def _search(*arguments: Any, **named: Any) -> Any:
    """`exhaustive_search` that runs every config in the interpreter, on the arguments that the real one takes."""
    given = inspect.signature(REAL_SEARCH).bind(*arguments, **named).arguments
    for config in given["search_space"]:
        hints = given["hints_fn"](config) if given.get("hints_fn") else {}
        kernel = given["kernel"]
        kernel = kernel if hasattr(kernel, "replace_hints") else kernel(config)
        grid, passed = given["grid_fn"](config), given["args_fn"](config)
        ct.launch(given["stream"], grid, kernel.replace_hints(**hints), passed)
        launch = host._host.launches[-1]  # type: ignore[union-attr,index]
        SEARCHED[id(launch)] = launch
    return REAL_SEARCH(*arguments, **named | {"quiet": True})


@contextlib.contextmanager
def stand_in() -> Iterator[None]:
    """Within it, this process believes that it has a GPU."""
    saved = {name: getattr(torch.cuda, name) for name in dir(torch.cuda) if not name.startswith("__")}
    launch, search = ct.launch, cuda.tile.tune.exhaustive_search
    host.install(spec_by_arch("sm_100"))  # which knows every instruction
    cuda.tile.tune.exhaustive_search = _search
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(torch.cuda, name, value)
        cuda.tile.launch = ct.launch = launch
        cuda.tile.tune.exhaustive_search = cuda.tile.tune._tune.exhaustive_search = search


def run(listed: list[Page], archs: tuple[str, ...] = ARCHS) -> Run:
    """Run every Python block of the pages, then compile what they launched."""
    found = Run()
    wanted: dict[str, tuple[Any, Page, int, str]] = {}
    with stand_in(), tempfile.TemporaryDirectory() as folder:
        for page in listed:
            if any(fence.language == "python" for fence in page.fences):
                path = Path(folder).resolve() / f"{page.path.parent.name}-{page.path.stem}.py"
                _run_page(page, path, archs, found, wanted)
        found.compiles = len(wanted)
        with ThreadPoolExecutor(2) as threads:
            for problem in threads.map(lambda one: _compiled(*one, Path(folder)), wanted.values()):
                if problem:
                    found.problems.append(problem)
    return found


def _run_page(page: Page, path: Path, archs: Any, found: Run, wanted: dict[str, Any]) -> None:
    fences = [fence for fence in page.fences if fence.language == "python"]
    try:
        module = module_of(page, path)
    except Exception as error:
        found.problems.append(page.problem(_line_of(error, path) or 1, f"{type(error).__name__}: {error}"))
        return
    bench, refused = Bench(), set()
    tools = {name: getattr(bench, name) for name in ("normal", "empty", "launch", "same")}
    ran: set[str] = set()
    for fence in fences:
        found.blocks += 1
        match = re.match(r'(?:run((?: sm_\d+)*)|refused "([^"]+)"): ?(.*)', fence.check, re.DOTALL)
        if not match:
            found.problems.append(page.problem(fence.line, "no comment after the block says how it is run"))
            continue
        named, words, code = match.groups()
        compared = bench.compared
        try:
            with host.running(host.Mode.RUN) as launches:
                exec(compile(code, f"<check of {page.name}>", "exec"), module.__dict__ | tools)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            refused |= {name for name in module.__dict__ if name in code}
            if words is None or words not in said:
                place = _line_of(error, path) or fence.line
                found.problems.append(page.problem(place, said[:600]))
            continue
        if words is not None:
            found.problems.append(page.problem(fence.line, f"was not refused with {words!r}"))
        elif bench.compared == compared and "assert" not in code:
            found.problems.append(page.problem(fence.line, "its check compares nothing: call same(), or assert"))
        for launch in launches:
            ran.add(launch.name)
            for arch in ARCHS[1:2] if id(launch) in SEARCHED else (named or "").split() or archs:
                made = lower(launch.kernel, launch.signature, arch, path.parent)
                wanted.setdefault(_key(made), (made, page, fence.line, arch))
    open_ = [f"the result of {name} is compared with nothing" for name in bench.open.values()]
    found.problems += [page.problem(1, text) for text in open_]
    kernels = {name for name, value in vars(module).items() if isinstance(value, ct.kernel)} - {*page.borrowed}
    found.kernels |= {f"{page.name}:{name}" for name in kernels}
    found.problems += [
        page.problem(1, f"kernel {name} is never run")
        for name in sorted(kernels - refused)
        if module.__dict__[name]._pyfunc.__name__ not in ran
    ]


def module_of(page: Page, path: Path) -> Any:
    """The page's blocks as one module, each at its own lines of the file `path`: a kernel's source lies in a file."""
    fences = [fence for fence in page.fences if fence.language == "python"]
    lines = [PRELUDE] + [""] * max(fence.line + fence.text.count("\n") + 1 for fence in fences)
    for fence in fences:
        for offset, line in enumerate(fence.text.splitlines()):
            lines[fence.line + offset] = line
    path.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    for other in {*page.borrowed.values()}:
        lender = module_of(read(other), path.with_name(f"{path.stem}-{other.stem}.py"))
        names = [name for name, place in page.borrowed.items() if place == other]
        vars(module).update({name: getattr(lender, name) for name in names})
    spec.loader.exec_module(module)
    return module


def _line_of(error: BaseException, path: Path) -> int | None:
    """The line of the page that an error comes from."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == str(path):
            return frame.lineno
    lines = re.findall(rf"{re.escape(path.name)}\D{{1,8}}(\d+)", str(error))
    return int(lines[-1]) if lines else getattr(error, "lineno", None)


def _key(lowered: Any) -> str:
    """Names what the compiler at hand makes of a kernel."""
    options = f"{compiler_version()} {lowered.arch} -O{lowered.opt_level} {lowered.error}"
    return hashlib.sha256(options.encode() + lowered.bytecode).hexdigest()


def _compiled(made: Any, page: Page, line: int, arch: str, folder: Path) -> Problem | None:
    if made.error:
        return page.problem(line, f"{made.kernel} for {arch}: {made.error[:400]}")
    done_before = Path(tempfile.gettempdir()) / f"tilewright-pages-{os.getuid()}" / _key(made)
    if done_before.exists():
        return None
    tool = find_tool("tileiras")
    assert tool, "tileiras is missing; run `tilewright doctor`"
    source = folder / f"{_key(made)}.bc"
    source.write_bytes(made.bytecode)
    cubin = str(source.with_suffix(".cubin"))
    command = [str(tool), "--gpu-name", arch, f"-O{made.opt_level}", str(source), "-o", cubin]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        return page.problem(line, f"{made.kernel} for {arch}: {done.stderr[:400]}")
    done_before.parent.mkdir(mode=0o700, exist_ok=True)
    done_before.touch()
    return None


if __name__ == "__main__":
    report = run([page for page in pages() if len(sys.argv) < 2 or any(name in page.name for name in sys.argv[1:])])
    print(*report.problems, sep="\n")
    print(f"{report.blocks} blocks, {len(report.kernels)} kernels, {report.compiles} compiles")
