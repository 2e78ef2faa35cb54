"""What a repository holds: its kernels, and the tests and benchmarks that exercise them. Reads source, runs none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tilewright.repository import Files

_TEST = re.compile(r"^(test_.*|.*_test)\.py$")
_BENCH = re.compile(r"^(bench.*|perf.*|.*_bench|.*_benchmark|.*_perf)\.py$")
_KERNEL = re.compile(r"^\s*@(?:(?:ct|tile|cuda\.tile)\.kernel|(?:triton|tl)\.jit)\b", re.MULTILINE)
"""What marks a kernel, as it is usually written."""
_PERF_FUNCTION = re.compile(r"perf|bench", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """One Python file: what it defines, imports and mentions."""

    path: str
    module: str
    functions: tuple[str, ...]
    has_kernel: bool
    imports: frozenset[str]
    words: frozenset[str] = field(repr=False)

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def is_bench(self) -> bool:
        """By its name, or by the folder that it lies in."""
        folders = PurePosixPath(self.path).parts[:-1]
        return bool(_BENCH.match(self.name)) or (
            bool({"benchmarks", "benchmark", "bench"} & set(folders))
            and bool(self.functions)
            and self.name != "conftest.py"
        )

    @property
    def is_test(self) -> bool:
        return bool(_TEST.match(self.name)) and not self.is_bench

    @property
    def perf_functions(self) -> tuple[str, ...]:
        """Test functions that measure rather than check, by their names."""
        return tuple(name for name in self.functions if name.startswith("test") and _PERF_FUNCTION.search(name))


@dataclass(frozen=True)
class Exercise:
    """A kernel file with the tests and the benchmark files that exercise it, the likeliest first."""

    kernel: Source
    tests: tuple[Source, ...]
    benches: tuple[Source, ...]


def read_sources(files: Files) -> dict[str, Source]:
    """The Python files of a repository by path; what cannot be parsed is left out."""
    roots = sorted({root for name in files if (root := _import_root(name, files)) is not None}, key=len, reverse=True)
    found = {}
    for path, content in files.items():
        if path.endswith(".py"):
            try:
                tree = ast.parse(content)
            except (SyntaxError, ValueError):
                continue
            found[path] = _source(path, content, tree, roots)
    return found


def exercises(sources: Mapping[str, Source], named: str = "") -> list[Exercise]:
    """The kernel files, or the file that is `named`, each with what exercises it: by imports, and first what also
    shares its name."""
    by_module = {source.module: source for source in sources.values()}
    reached = {
        path: _reached(source, by_module) for path, source in sources.items() if source.is_test or source.is_bench
    }
    found = []
    for kernel in sources.values():
        wanted = kernel.path == named if named else kernel.has_kernel and not (kernel.is_test or kernel.is_bench)
        if not wanted:
            continue
        users = [sources[path] for path, modules in reached.items() if kernel.module in modules]
        ranked = sorted(users, key=lambda user: (-_kinship(kernel, user), user.path))
        near = [user for user in ranked if _kinship(kernel, user) > 0] or ranked
        tests = tuple(user for user in near if user.is_test)
        benches = tuple(user for user in near if user.is_bench or user.perf_functions)
        found.append(Exercise(kernel, tests, benches))
    return found


def _source(path: str, content: bytes, tree: ast.Module, roots: list[str]) -> Source:
    functions, imports, words = [], set(), set()
    module = _module(path, roots)
    package = module if path.endswith("/__init__.py") else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append(node.name)
        elif isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            origin = ".".join(filter(None, (base, node.module or "")))
            imports |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
    has_kernel = bool(_KERNEL.search(content.decode("utf-8", "replace")))
    return Source(path, module, tuple(functions), has_kernel, frozenset(imports), frozenset(words))


def _reached(source: Source, by_module: Mapping[str, Source]) -> set[str]:
    """The repository's modules that a file imports, and those that these import."""
    found: set[str] = set()
    queue = [*source.imports]
    while queue:
        name = queue.pop()
        for known in _with_packages(name):
            if known in by_module and known not in found:
                found.add(known)
                queue += by_module[known].imports
    return found


def _with_packages(name: str) -> Iterator[str]:
    """A module's name, and those of the packages that it lies in, which are imported with it."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _kinship(kernel: Source, user: Source) -> int:
    """How much speaks for `user` exercising `kernel`, beyond reaching it: its name, a direct import, its functions."""
    stem = _plain(PurePosixPath(kernel.path).stem)
    named = stem in _plain(PurePosixPath(user.path).stem)
    direct = kernel.module in user.imports
    called = bool({name for name in kernel.functions if not name.startswith("_")} & user.words)
    return 4 * named + 2 * direct + called


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def _import_root(name: str, files: Files) -> str | None:
    """The folder that holds a file's outermost package; None for what lies in no package."""
    place = PurePosixPath(name).parent
    if f"{place}/__init__.py" not in files:
        return None
    while f"{place}/__init__.py" in files:
        place = place.parent
    return place.as_posix()


def _module(path: str, roots: list[str]) -> str:
    """A file's dotted name as seen from the import root it lies in, from `src`, or from the repository's root."""
    inside = next((root for root in [*roots, "src"] if root != "." and path.startswith(f"{root}/")), "")
    relative = path.removeprefix(f"{inside}/") if inside else path
    return relative.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def module_at(path: str, files: Files) -> tuple[str, str]:
    """A file's dotted name, and the folder from which it is imported so."""
    root = _import_root(path, files) or PurePosixPath(path).parent.as_posix()
    inside = path.removeprefix(f"{root}/") if root != "." else path
    return inside.removesuffix(".py").removesuffix("/__init__").replace("/", "."), root


def module_path(module: str, files: Files) -> str | None:
    """The committed file that a module is, the one nearest to the repository's root."""
    stem = module.replace(".", "/")
    ends = (f"{stem}.py", f"{stem}/__init__.py")
    fitting = [path for path in files if any(f"/{path}".endswith(f"/{end}") for end in ends)]
    return min(fitting, key=lambda path: (path.count("/"), path), default=None)
