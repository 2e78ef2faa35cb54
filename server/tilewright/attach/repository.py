"""What `init` does with a repository: reads what is committed, runs a command on a copy of it, and drafts a task."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tilewright.attach.finding import Source, kernels_of, likeliest_test, read_sources
from tilewright.attach.inputs import FILL_IN
from tilewright.attach.writing import quoted
from tilewright.errors import UsageError
from tilewright.harness.commands import Ran, fresh_place, read_result, run
from tilewright.harness.outcomes import Test, read_report
from tilewright.repository import Files, Repository
from tilewright.task import NAME
from tilewright.text import cut, printable

LIMIT_S = 300.0
"""For a command before there is a task."""
OF_FUNCTION = "make a task of one function: tilewright init module:function --shape 4096x8192"


@dataclass(frozen=True)
class Wishes:
    """What a user asks for. `entry` is a function, as module:function or file.py:function. A file alone stands for the
    function of it that its tests call most, and nothing for the `kernel` file of the repository.

    `shapes` are written 4096x8192 for all tensors, or x=4096x8192, or labels=4096:int64; `arguments` eps=1e-6; `ranges`
    N=64..128:32. With `test`, a file of tests, shapes, dtypes and arguments are those of the calls that its tests make;
    `select` is a word for pytest's -k."""

    entry: str = ""
    kernel: str = ""
    test: str = ""
    select: str = ""
    shapes: list[str] = field(default_factory=list)
    dtype: str = "bfloat16"
    arguments: list[str] = field(default_factory=list)
    reference: str = ""
    name: str = ""
    ranges: list[str] = field(default_factory=list)


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


class Tried(NamedTuple):
    """What came of a run: how it ended, its tests, and the text of its `{out}`."""

    ran: Ran
    tests: list[Test]
    out: str


def tried(files: Files, hidden: Path, words: list[str], import_roots: list[str]) -> Tried:
    """Run a command on copies of `files`; `{junit}` and `{out}` in it stand for files of its own. It may read nothing
    of `hidden`, the working tree."""
    with tempfile.TemporaryDirectory(prefix="tilewright-init-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for file, content in files.items():
            path = folder / "snapshot" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        place = fresh_place(folder / "snapshot", folder, hidden=hidden)
        ran, tests, out = run(words, place, LIMIT_S, import_roots), list[Test](), ""
        with contextlib.suppress(ValueError):
            out = read_result(place.out) or ""
            tests = read_report(read_result(place.junit) or "")
        return Tried(ran, tests, out)


def draft(wishes: Wishes, kernel: Source, test: Source, why: str) -> Proposal:
    """A repository task in which a person fills in the benchmark: its command, and the pattern that finds latencies in
    what it prints. `why`: why there is no native task."""
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


def committed(root: Path) -> tuple[Repository, Files]:
    """The repository that holds `root`, and its committed files with those of submodules. Raises `UsageError`."""
    repository = Repository(root)
    return repository, repository.whole(repository.head())


def named_after(word: str) -> str:
    """A task's name made of a file's or a function's, in ASCII."""
    return re.sub(r"[^a-z0-9_-]", "_", word.casefold()).strip("_-")[:64] or "kernel"


def need_name(name: str) -> None:
    """Raises `UsageError` where a name that the user gave is no task's; an empty one stands for the default."""
    if name and not re.fullmatch(NAME, name):
        raise UsageError(
            f"--name {cut(printable(name), 80)}: at most 64 lower case letters, digits, _ and -, the first a letter "
            "or digit"
        )


def chosen(files: Files, wishes: Wishes) -> tuple[Source, Source]:
    """The kernel to make faster, and the tests that name it. Raises `UsageError` listing what there is."""
    sources = read_sources(files)
    test = wishes.test.split("::")[0]
    for option, path in (("--kernel", wishes.kernel), ("--test", test)):
        if path and path not in sources:
            raise UsageError(f"{option} {path}: no such Python file is committed; paths are relative to the repository")
    kernels = [sources[wishes.kernel]] if wishes.kernel else kernels_of(sources)
    if not kernels:
        raise UsageError(
            "no file holds a function marked @ct.kernel or @triton.jit; name one: --kernel path/to/file.py"
        )
    pairs = [(one, sources[test] if test else likeliest_test(one, sources)) for one in kernels]
    tested = [(kernel, its) for kernel, its in pairs if its is not None]
    if not tested:
        raise UsageError(
            f"{kernels[0].path}: found no test that names it; name it with --test path/to/file.py, or {OF_FUNCTION}"
        )
    if len(tested) > 1:
        listed = "\n".join(f"  --kernel {kernel.path}, with {its.path}" for kernel, its in tested)
        raise UsageError(f"{len(tested)} files hold kernels with tests; choose one:\n{listed}")
    return tested[0]


def check_command(tests: str, perf: Iterable[str], select: str) -> list[str]:
    """The command that runs tests without the functions that measure."""
    names = sorted(set(perf))
    measured = f"({' or '.join(names)})" if names[1:] else "".join(names)
    parts = [f"not {measured}" if measured else "", f"({select})" if " " in select else select]
    chosen = " and ".join(filter(None, parts))
    return ["python", "-m", "pytest", tests, *(["-k", chosen] if chosen else []), "--junitxml={junit}"]
