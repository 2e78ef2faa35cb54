"""What a repository holds: its kernels, and the tests that name them. Reads text, and runs nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.repository import Files

MEASURES = re.compile(r"perf|bench", re.IGNORECASE)
"""In the name of a test, that it measures."""
_TEST = re.compile(r"^(test_.*|.*_test)\.py$")
_BENCH = re.compile(r"(^|[/_])(bench|benchmarks?)[/_.]|(^|/)perf_[^/]*$|_perf\.py$")
_OF_TESTS = ("test", "tests", "bench", "benchmark", "perf")
_KERNEL = re.compile(r"^\s*@(?:(?:ct|tile|cuda\.tile)\.kernel|(?:triton|tl)\.jit)\b", re.MULTILINE)
"""What marks a kernel, as it is usually written."""
_BACKENDS = ("cutile", "triton", "tilelang", "cute", "cuda", "torch")
_FUNCTION = re.compile(r"^\s*(?:async\s+)?def\s+(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: str
    module: str
    text: str = field(repr=False)

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def backend(self) -> str:
        """What the kernel is written in, if its path names that."""
        parts = [part.removesuffix(".py") for part in PurePosixPath(self.path).parts]
        return next((part for part in parts if part in _BACKENDS), "")

    @property
    def has_kernel(self) -> bool:
        return bool(_KERNEL.search(self.text))

    @cached_property
    def functions(self) -> tuple[str, ...]:
        return tuple(_FUNCTION.findall(self.text))

    @property
    def is_bench(self) -> bool:
        """By its name, or by the folder that it lies in."""
        return bool(_BENCH.search(self.path))

    @property
    def is_test(self) -> bool:
        return bool(_TEST.match(self.name)) and not self.is_bench

    @property
    def perf_functions(self) -> tuple[str, ...]:
        """Test functions that measure rather than check, by their names."""
        return tuple(name for name in self.functions if name.startswith("test") and MEASURES.search(name))

    def kinship(self, kernel: Source) -> tuple[bool, bool, bool]:
        """What speaks for this file testing `kernel`, the strongest sign first: its name, its module in the text, and
        one of its public functions there."""
        stem = re.sub(r"[^a-z0-9]", "", PurePosixPath(kernel.path).stem.casefold())
        words = re.split(r"[^a-z0-9]+", PurePosixPath(self.name).stem.casefold())
        same = stem == "".join(word for word in words if word not in _OF_TESTS)
        module = bool(re.search(rf"\b{re.escape(kernel.module)}(?![\w.])", self.text))
        public = [name for name in kernel.functions if not name.startswith("_")]
        called = bool(public) and bool(re.search(rf"\b({'|'.join(public)})\b", self.text))
        return same, module, called


def read_sources(files: Files) -> dict[str, Source]:
    """The Python files of a repository by path."""
    return {
        path: Source(path, module_at(path, files)[0], content.decode("utf-8", "replace"))
        for path, content in files.items()
        if path.endswith(".py")
    }


def kernels_of(sources: Mapping[str, Source]) -> list[Source]:
    """The files that hold kernels, and are neither tests nor benchmarks."""
    return [one for one in sources.values() if one.has_kernel and not one.is_test and not one.is_bench]


def likeliest_test(kernel: Source, sources: Mapping[str, Source]) -> Source | None:
    """The file of tests that most likely tests a kernel's file; None if no file of tests names it."""
    kin = [one for one in sources.values() if one.is_test and one is not kernel and any(one.kinship(kernel))]
    return max(kin, key=lambda one: one.kinship(kernel), default=None)


def module_at(path: str, files: Files) -> tuple[str, str]:
    """A file's dotted name, and the folder from which it is imported so: that of its outermost package."""
    place = PurePosixPath(path).parent
    while f"{place}/__init__.py" in files:
        place = place.parent
    inside = PurePosixPath(path).relative_to(place).as_posix()
    return inside.removesuffix(".py").removesuffix("/__init__").replace("/", "."), place.as_posix()


def module_path(module: str, files: Files) -> str | None:
    """The committed file that a module is, the one nearest to the repository's root."""
    stem = module.replace(".", "/")
    ends = (f"/{stem}.py", f"/{stem}/__init__.py")
    return min((path for path in files if f"/{path}".endswith(ends)), key=lambda path: path.count("/"), default=None)
