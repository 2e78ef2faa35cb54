"""A repository's kernel and the tests that name it; the draft of a task that runs the repository's own commands."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tilewright.attach.finding import Exercise, Source, exercises, read_sources
from tilewright.attach.inputs import FILL_IN
from tilewright.attach.trials import WANTS_GPU
from tilewright.attach.writing import quoted
from tilewright.errors import UsageError
from tilewright.repository import Files, Repository
from tilewright.session.runs import backend_here
from tilewright.task import NAME, Backend
from tilewright.text import cut, printable

OF_FUNCTION = "make a task of one function: tilewright init module:function --shape 4096x8192"


@dataclass(frozen=True)
class Wishes:
    """What a user steers: the kernel file, the tests, and a word that selects among their ids."""

    kernel: str = ""
    test: str = ""
    select: str = ""
    name: str = ""


@dataclass(frozen=True)
class Proposal:
    """A task that was tried: its folder relative to the repository's root, its text, what was seen of it, and the
    other files of the folder by name. `is_open`: a person has to fill something in."""

    folder: PurePosixPath
    text: str
    seen: list[str]
    beside: Mapping[str, str] = field(default_factory=dict)
    is_open: bool = False
    then: str = "session start"
    """The command that works on it next."""

    def among(self, files: Files) -> Files:
        """The repository's files with those of the task."""
        own = {"task.toml": self.text, **self.beside}
        return files | {f"{self.folder}/{name}": text.encode() for name, text in own.items()}


def draft(root: Path, wishes: Wishes, kernel: Source, test: Source, why: str) -> Proposal:
    """A repository task in which a person fills in the benchmark: its command, and the pattern that finds latencies in
    what it prints. `why`: why there is no native task. Raises `UsageError`."""
    need_name(wishes.name)
    need_own(committed(root)[0], kernel.path, "")
    name = wishes.name or named_after(PurePosixPath(kernel.path).stem)
    check = check_command(wishes.test or test.path, test.perf_functions, wishes.select)
    text = f"""# Written by `tilewright init`. Commands run in `root`, on clean copies of candidate and incumbent.
name = {quoted(name)}
root = "../.."
editable = [{quoted(kernel.path)}]

[correctness]
command = {quoted(check)}

[benchmark]
command = ["{FILL_IN}: the words of the command that measures"]
pattern = '{FILL_IN}: where a latency stands in what it prints, as in "took (?P<ms>[0-9.]+) ms"'
"""
    seen = [
        f"no call of {test.path} makes a native task: {why}",
        "harness-trusted: your own tests and benchmark judge. There are no hidden cases and no secret inputs, nothing "
        "is replayed, and the kernel shares the tests' process",
    ]
    return Proposal(PurePosixPath("perf") / name, text, seen, is_open=True)


def chosen(root: Path, wishes: Wishes) -> tuple[Source, Source]:
    """The kernel to make faster, and the tests that name it. Raises `UsageError` listing what there is."""
    found = _choice(read_sources(committed(root)[1]), wishes)
    return found.kernel, found.tests[0]


def committed(root: Path) -> tuple[Repository, Files]:
    """The repository that holds `root`, and its committed files with those of submodules. Raises `UsageError`."""
    repository = Repository(root)
    return repository, repository.whole(repository.head())


def need_own(repository: Repository, path: str, target: str) -> None:
    """Raises `UsageError` where a file to edit lies in a submodule: its commits are not those of the repository."""
    if inside := repository.submodule_of(PurePosixPath(path)):
        raise UsageError(
            f"{path} lies in the submodule {inside}, which has commits of its own: commit a branch there, and give "
            f"init that folder: cd {inside} && tilewright init {target.removeprefix(f'{inside}/')}".rstrip()
        )


def named_after(word: str) -> str:
    """A task's name made of a file's or a function's: what is no ASCII letter or digit is left out."""
    plain = unicodedata.normalize("NFKD", word.casefold()).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9_-]", "_", plain).strip("_-")[:64] or "kernel"


def need_name(name: str) -> None:
    """Raises `UsageError` where a name that the user gave is no task's; an empty one stands for the default."""
    if name and not re.fullmatch(NAME, name):
        raise UsageError(
            f"--name {cut(printable(name), 80)}: at most 64 lower case letters, digits, _ and -, the first a letter "
            "or digit"
        )


def _choice(sources: dict[str, Source], wishes: Wishes) -> Exercise:
    """The kernel to make faster, with the tests that name it. Raises `UsageError` listing what there is."""
    for option, path in (("--kernel", wishes.kernel), ("--test", wishes.test)):
        if path and path.split("::")[0] not in sources:
            raise UsageError(f"{option} {path}: no such Python file is committed; paths are relative to the repository")
    found = exercises(sources, wishes.kernel)
    if not found:
        raise UsageError(
            "no file holds a function marked @ct.kernel or @triton.jit; name one: --kernel path/to/file.py"
        )
    if wishes.test:
        found = [Exercise(one.kernel, (sources[wishes.test.split("::")[0]],)) for one in found]
    tested = [one for one in found if one.tests]
    if len(tested) == 1:
        return tested[0]
    if tested:
        listed = "\n".join(f"  --kernel {one.kernel.path}, with {one.tests[0].path}" for one in tested)
        raise UsageError(f"{len(tested)} files hold kernels with tests; choose one:\n{listed}")
    raise UsageError(
        f"{found[0].kernel.path}: found no test that names it; name it with --test path/to/file.py, or {OF_FUNCTION}"
    )


def check_command(tests: str, perf: Iterable[str], select: str) -> list[str]:
    """The command that runs tests without the functions that measure."""
    names = sorted(set(perf))
    measured = f"({' or '.join(names)})" if names[1:] else "".join(names)
    parts = [f"not {measured}" if measured else "", f"({select})" if " " in select else select]
    chosen = " and ".join(filter(None, parts))
    return ["python", "-m", "pytest", tests, *(["-k", chosen] if chosen else []), "--junitxml={junit}"]


def need_no_gpu(said: str, command: list[str]) -> None:
    """Raises `UsageError` where what a command said is that it wants a GPU, and there is none."""
    if (found := WANTS_GPU.search(said)) and backend_here() is Backend.CPU:
        line = next(line for line in said.splitlines() if found[0] in line)
        raise UsageError(
            f"`{' '.join(command)}` wants a GPU, and this machine has none ({cut(line.strip(), 160)}). Without one, "
            f"{OF_FUNCTION}"
        )
