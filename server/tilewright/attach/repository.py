"""A command task for a repository: found by its sources, tried, timed, and put into words before it is written."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tilewright.attach.finding import Exercise, Source, exercises, read_sources
from tilewright.attach.reading import Reading, fitting, quoted, shown
from tilewright.attach.trial import Trial, Tried
from tilewright.attach.trials import WANTS_GPU
from tilewright.commandtask import CommandTask, parse_command_task, unit_of
from tilewright.errors import UsageError
from tilewright.evaluation.statistics import PAIR_LOOKS
from tilewright.harness.outcomes import Outcome
from tilewright.repository import Files, Repository
from tilewright.rules import DEFAULT
from tilewright.session.runs import backend_here
from tilewright.task import NAME, Backend
from tilewright.text import cut, printable

LIMIT_S = 1800.0
NEEDED_RUNS = 4 * PAIR_LOOKS[0]
"""Of the benchmark in an iteration at least: two arms, and a gain is confirmed by as many."""
BUDGET_S = 60 * DEFAULT.iteration_minutes
OF_FUNCTION = "make a task of one function: tilewright init module:function --shape 4096x8192"


@dataclass(frozen=True)
class Wishes:
    """What a user steers: the kernel file, the tests, the benchmark, and a word that selects among their ids."""

    kernel: str = ""
    test: str = ""
    bench: str = ""
    select: str = ""
    name: str = ""


@dataclass(frozen=True)
class Proposal:
    """A task file that was tried: its folder relative to the repository's root, its text, what was seen of it, and the
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


def propose(root: Path, wishes: Wishes, tell: Any) -> Proposal:
    """A command task for the repository that holds `root`; its committed files are what counts.

    `tell` is told what goes on. Raises `UsageError` where a choice is the user's, or where something fails when it is
    run.
    """
    need_name(wishes.name)
    repository, files = committed(root)
    found = _choice(read_sources(files), wishes)
    need_own(repository, found.kernel.path, "")
    test, bench = found.tests[0], found.benches[0]
    words = _words(found.kernel, wishes)
    name = wishes.name or named_after(PurePosixPath(found.kernel.path).stem)
    folder = PurePosixPath("perf") / name
    roots = _roots(found.kernel, name, Path(repository.root))
    with Trial(files, Path(repository.root)) as trial:
        tell(f"running the tests of {test.path}")
        check = check_command(wishes.test or test.path, test.perf_functions, wishes.select)
        tested = trial.run(check, roots, LIMIT_S)
        _need_passed(tested, check, "the tests")
        for command in _bench_commands(bench, wishes, words):
            tell(f"running the benchmark {bench.path}")
            runs = [trial.run(command, roots, LIMIT_S)]
            if runs[0].ran.status == 0 and fitting(runs, command, words):
                break
            if runs[0].tests and not wishes.select and "-k" not in command:
                break
        _need_ran(runs[0], command)
        _need_figures(runs, command, words)
        tell("running it again: its cases have to be the same")
        runs.append(trial.run(command, roots, LIMIT_S))
        _need_ran(runs[1], command)
    reading = _need_figures(runs, command, words)
    text = _text(name, found, check, command, reading)
    parse_command_task(text, Path("task.toml"))
    return Proposal(folder, text, [*_seen(tested, runs, reading), *_others(found)])


def chosen(root: Path, wishes: Wishes) -> tuple[Source, Source]:
    """The kernel to make faster, and the tests that name it. Raises `UsageError` listing what there is."""
    found = _choice(read_sources(committed(root)[1]), wishes, measures=False)
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


def _choice(sources: dict[str, Source], wishes: Wishes, measures: bool = True) -> Exercise:
    """The kernel to make faster, with one test file, and one benchmark file if that `measures`. Raises `UsageError`
    listing what there is."""
    for option, path in (("--kernel", wishes.kernel), ("--test", wishes.test), ("--bench", wishes.bench)):
        if path and path.split("::")[0] not in sources:
            raise UsageError(f"{option} {path}: no such Python file is committed; paths are relative to the repository")
    found = exercises(sources, wishes.kernel)
    if not found:
        raise UsageError(
            "no file holds a function marked @ct.kernel or @triton.jit; name one: --kernel path/to/file.py"
        )
    given = [
        Exercise(
            one.kernel,
            (sources[wishes.test.split("::")[0]],) if wishes.test else one.tests,
            (sources[wishes.bench.split("::")[0]],) if wishes.bench else one.benches,
        )
        for one in found
    ]
    whole = [one for one in given if one.tests and (one.benches or not measures)]
    if len(whole) == 1:
        return whole[0]
    if whole:
        listed = "\n".join(f"  --kernel {one.kernel.path}, with {one.tests[0].path}" for one in whole)
        raise UsageError(f"{len(whole)} files hold kernels with tests; choose one:\n{listed}")
    one = given[0]
    lacking, option = ("test", "--test") if not one.tests else ("benchmark", "--bench")
    named = f"name it with {option} path/to/file.py"
    raise UsageError(f"{one.kernel.path}: found no {lacking} that names it; {named}, or {OF_FUNCTION}")


def _words(kernel: Source, wishes: Wishes) -> list[str]:
    """What a figure's name must hold: the user's word, else the backend that the kernel's path names."""
    if wishes.select:
        return [wishes.select]
    return [kernel.backend] if kernel.backend else []


def _roots(kernel: Source, name: str, root: Path) -> list[str]:
    draft = (
        f'name = "{name}"\neditable = [{quoted(kernel.path)}]\n[correctness]\ncommand = ["x"]\n'
        '[benchmark]\ncommand = ["x"]\npattern = "(?P<ms>x)"\n'
    )
    return CommandTask(parse_command_task(draft, Path("task.toml")), root).import_roots()


def _pytest(path: str, *expressions: str) -> list[str]:
    chosen = " and ".join(filter(None, expressions))
    return ["python", "-m", "pytest", path, *(["-k", chosen] if chosen else []), "--junitxml={junit}"]


def check_command(tests: str, perf: Iterable[str], select: str) -> list[str]:
    """The command that runs tests without the functions that measure."""
    measured = _any_of(perf)
    return _pytest(tests, f"not {measured}" if measured else "", f"({select})" if " " in select else select)


def _any_of(names: Iterable[str]) -> str:
    found = sorted(set(names))
    return f"({' or '.join(found)})" if found[1:] else "".join(found)


def _bench_commands(bench: Source, wishes: Wishes, words: list[str]) -> list[list[str]]:
    """Commands to try in turn: only the tests whose names hold the backend, all tests, the file as a script."""
    named = _any_of(bench.perf_functions) if bench.is_test else ""
    report = ["--benchmark-json={out}"] if "pytest_benchmark" in bench.text else []
    chosen = [*words, ""] if not wishes.select else [wishes.select]
    commands = [[*_pytest(wishes.bench or bench.path, named, word), *report] for word in chosen]
    return [*commands, ["python", bench.path]]


def _need_passed(tested: Tried, command: list[str], what: str) -> None:
    _need_ran(tested, command)
    failed = [test for test in tested.tests if test.outcome is Outcome.FAILED]
    if failed:
        raise UsageError(f"{what} fail before anything was changed: {failed[0].id}: {failed[0].message}")
    if not any(test.outcome is Outcome.PASSED for test in tested.tests):
        why = next((test.message for test in tested.tests), "nothing was collected")
        need_no_gpu(why, command)
        raise UsageError(f"no test passed: {why}; {_again(command)}")


def _need_ran(tried: Tried, command: list[str]) -> None:
    if tried.ran.status != 0:
        said = "\n".join([tried.ran.last_words, *(test.message for test in tried.tests)])
        if "No module named pytest" in said:
            raise UsageError(f"this Python has no pytest, which runs the tests: {sys.executable} -m pip install pytest")
        need_no_gpu(said, command)
        raise UsageError(f"a command {tried.ran.ended}; {_again(command)}\n{tried.ran.last_words[-1500:]}")


def need_no_gpu(said: str, command: list[str]) -> None:
    """Raises `UsageError` where what a command said is that it wants a GPU, and there is none."""
    if (found := WANTS_GPU.search(said)) and backend_here() is Backend.CPU:
        line = next(line for line in said.splitlines() if found[0] in line)
        raise UsageError(
            f"`{' '.join(command)}` wants a GPU, and this machine has none ({cut(line.strip(), 160)}). Without one, "
            f"{OF_FUNCTION}"
        )


def _again(command: list[str]) -> str:
    return f"it was `{' '.join(command)}`, on a copy of what is committed; steer it with --test, --bench, --select"


def _need_figures(runs: list[Tried], command: list[str], words: list[str]) -> Reading:
    found = fitting(runs, command, words)
    if found is None:
        raise UsageError(
            "no known pattern reads the same latencies twice from what the benchmark recorded or printed; write the "
            "task by hand, with a pattern of its own, and the file if it writes one: see docs/reference/task.md. It "
            "printed:\n"
            f"{runs[0].ran.stdout[-1200:].strip() or 'nothing'}"
        )
    return found


def _text(name: str, found: Exercise, check: list[str], command: list[str], reading: Reading) -> str:
    return f"""# Written by `tilewright init`. Commands run in `root`, on clean checkouts of candidate and incumbent.
name = {quoted(name)}
root = "../.."
editable = [{quoted(found.kernel.path)}]

[correctness]
command = {quoted(check)}

[benchmark]
command = {quoted(command)}
{shown(reading.keys)}
"""


def _seen(tested: Tried, runs: list[Tried], reading: Reading) -> list[str]:
    counted = {outcome: sum(test.outcome is outcome for test in tested.tests) for outcome in Outcome}
    seconds = max(run.ran.seconds for run in runs)
    needed = NEEDED_RUNS * seconds
    fits = "" if needed <= BUDGET_S else f": more than the {BUDGET_S / 60:.0f} that it has; narrow it with --select"
    unit = unit_of(reading.keys["pattern"])
    lines = [
        f"tests: {counted[Outcome.PASSED]} passed, {counted[Outcome.SKIPPED]} skipped, in {tested.ran.seconds:.1f} s",
        f"benchmark: {len(reading.figures)} figures, taken to be in {unit}, in {seconds:.1f} s a run",
        f"a kept iteration takes {needed / 60:.1f} minutes or more{fits}",
    ]
    for figure in reading.figures[:8]:
        lines.append(f"  {figure.label}: {figure.milliseconds:.6f} ms, from")
        lines.append(f"    {cut(' '.join(figure.line.split()), 160)}")
    if (more := len(reading.figures) - 8) > 0:
        lines.append(f"  and {more} more")
    return lines


def _others(found: Exercise) -> list[str]:
    lines = []
    if len(found.tests) > 1 or len(found.benches) > 1:
        more = dict.fromkeys(one.path for one in (*found.tests[1:4], *found.benches[1:4]))
        lines.append(f"also there, for --test and --bench: {', '.join(more)}")
    lines.append(
        "harness-trusted: there are no hidden cases, no fresh inputs from secret seeds and no float64 reference, "
        "nothing is replayed, and the kernel shares the tests' process"
    )
    lines.append(
        f"a native task has all of that: `tilewright init {found.kernel.path}:function --test {found.tests[0].path}` "
        "takes its inputs from the tests' own calls, or give --shape 4096x8192 --dtype bfloat16"
    )
    return lines
