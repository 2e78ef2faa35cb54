"""What Tilewright asks of a language. A new one is a folder with a `Frontend`, and its name in `FRONTENDS`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple, Protocol

from tilewright.errors import UsageError


class MissingPackage(UsageError):
    """A language's package is not installed. The text names the command that installs it."""


class Tuner(NamedTuple):
    """A tuner that ran: of how many configs it took which, and the number of the one that it took first; None where
    that is not one of them."""

    name: str
    configs: int
    taken: list[str]
    first: int | None


class Choice(NamedTuple):
    """The config that tuners take, by its number, modulo how many there are. `known`: the numbers of tuners by their
    names and how many configs they have; if it is given, all others search."""

    config: int
    known: Mapping[str, int] | None = None

    def of(self, name: str, configs: int) -> int | None:
        """The number of the config that a tuner takes; None: it is to search."""
        number = self.config if self.known is None else self.known.get(tuner_key(name, configs))
        return None if number is None else number % configs


def tuner_key(name: str, configs: int) -> str:
    """What a tuner is known by."""
    return f"{name} of {configs}"


class ImageSource(Protocol):
    """The machine code that a language's loader gave to the driver since it is watched."""

    def of(self, handle: int) -> bytes | None:
        """Return the image that a CUlibrary, CUmodule, CUkernel or CUfunction came from. None if it is unknown.

        Symbols do not tell images apart: a tuner loads many images that hold the same one.
        """

    def images(self) -> Collection[bytes]:
        """Return all images that were loaded, those unloaded since among them."""

    def own(self) -> Collection[str]:
        """Return the symbols of the kernels that were compiled from the candidate's own sources."""


class Runtime:
    """A language in the process that runs candidates. Its module may import torch and the language. What is said here
    is true of a language without kernels of its own."""

    compile_errors: tuple[type[BaseException], ...] = ()
    """What the language raises when it cannot compile a kernel."""

    def watch_images(self) -> ImageSource:
        """Watch what the language loads from now on. Called before the candidate is imported."""
        raise NotImplementedError

    def capturing(self) -> AbstractContextManager[list[Any]]:
        """Give a list that keeps alive the kernels launched within.

        A CUDA graph does not do so: code that is unloaded is gone from the graph too.
        """
        return contextlib.nullcontext([])

    def launched(self) -> Collection[CodeType]:
        """Return the code of the kernels that were launched here, where Python does not run it."""
        return ()

    def tuners(self) -> list[Tuner]:
        """Return the tuners that ran here, of those with several configs."""
        return []

    def choose(self, choice: Choice) -> None:
        """From now on let each tuner of several configs take what is chosen for it, without a clock."""


@dataclass(frozen=True)
class Frontend:
    """A language, in any process: it imports neither torch nor the language."""

    name: str
    """As task.toml has it."""
    folder: str
    """A package whose module `runtime` has a `Runtime` by the name RUNTIME."""
    packages: Mapping[str, str]
    """The modules it needs, each with the command that installs it."""
    has_kernels: bool = True
    """Whether there are kernels to compile. If not, operations are listed."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of a process that runs candidates."""
    ahead: str = ""
    """A module, if not empty. Its `get_ready` does what each process that runs candidates would do anew. If it has a
    function `begin`, that runs in each of these: it reads the environment variables that the language read."""

    def runtime(self) -> Runtime:
        """Raises `MissingPackage`."""
        need_packages(self)
        try:
            found: Runtime = importlib.import_module(f"{self.folder}.runtime").RUNTIME
        except ImportError as error:
            commands = " && ".join(self.packages.values())
            raise MissingPackage(f"this is no {self.name} that is known here ({error}): {commands}") from None
        return found


class Frontends:
    """The languages, by their dotted names. Each is imported when it is asked for."""

    dotted = (
        "tilewright.frontends.cutile:CUTILE",
        "tilewright.frontends.triton:TRITON",
        "tilewright.frontends.torch:TORCH",
    )

    def __iter__(self) -> Iterator[Frontend]:
        for module, _, attribute in (dotted.partition(":") for dotted in self.dotted):
            yield getattr(importlib.import_module(module), attribute)

    def __getitem__(self, name: str) -> Frontend:
        """Raises `UsageError` if there is no such language."""
        known = {frontend.name: frontend for frontend in self}
        if name not in known:
            raise UsageError(f"no frontend {name!r}: there are {', '.join(known)}")
        return known[name]


FRONTENDS = Frontends()


def need_packages(frontend: Frontend) -> None:
    """Raises `MissingPackage` if a package of the language is not installed."""
    for package, command in frontend.packages.items():
        if not _installed(package):
            raise MissingPackage(
                f"frontend = {frontend.name!r} needs the package {package}, which is not there: {command}"
            )


def imported_runtimes() -> Iterator[Runtime]:
    """The runtimes of the languages that this process has imported: a candidate may mix them."""
    for frontend in FRONTENDS:
        if all(sys.modules.get(package) for package in frontend.packages):
            with contextlib.suppress(MissingPackage):
                yield frontend.runtime()


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # no parent package; a module that somebody made up
        return False
