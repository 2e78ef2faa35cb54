"""`dump_ir`: what the compiler makes of the working tree's kernels, for any architecture, on any machine."""

from __future__ import annotations

import hashlib
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar, get_args

from tilewright.compiler.tools import known_archs
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.evaluation.snapshot import content_id
from tilewright.files import write_atomically
from tilewright.knobs import Value
from tilewright.repository import Files
from tilewright.session import dumptext
from tilewright.session.beginning import working_candidate
from tilewright.session.checkout import Checkout, EditableFiles
from tilewright.session.dumptext import STAGES, Stage
from tilewright.session.jobs import WAIT_S, Job, Jobs, Progress
from tilewright.session.outcomes import Dumped
from tilewright.session.reports import DumpReport
from tilewright.session.runs import Runs
from tilewright.task import Backend, Case

Compare = Literal["incumbent"]
COMPARISONS: tuple[Compare, ...] = get_args(Compare)
HeldT = TypeVar("HeldT")
KEPT_TEXTS = 32
"""Of one server, and as files under `sandbox/dumps/`."""
KEPT_DUMPS = 8
COMPILE_S = 60.0
LIMIT_S = 600.0

__all__ = ["COMPARISONS", "COMPILE_S", "STAGES", "Compare", "Dumper", "Stage"]


class Dumper:
    """Dumps of one checkout's tasks; whole texts stay readable as resources, and as files where a reply cuts them."""

    def __init__(self, checkout: Checkout, jobs: Jobs | None = None) -> None:
        """`jobs` is the server's."""
        self._checkout = checkout
        self._jobs = jobs or Jobs()
        self._runs: Runs | None = None
        self._runs_for: tuple[PurePosixPath, str] | None = None
        self._dumps: OrderedDict[str, Dumped] = OrderedDict()
        self._texts: OrderedDict[str, bytes] = OrderedDict()

    async def dump(
        self,
        folder: PurePosixPath,
        archs: list[str],
        stage: Stage,
        progress: Progress,
        wait_s: float = WAIT_S,
        compare: Compare | None = None,
        compile_s: float = COMPILE_S,
        case: Case | None = None,
        config: Mapping[str, Value] | None = None,
    ) -> DumpReport:
        """Compile what the task's entry point launches, for each of `archs`, in `compile_s` seconds a kernel at most:
        on the first case, where `case` does not give other values of its names, and with the knobs of `config` set.

        With `compare`, show what changed against the incumbent of the current session. Raises `UsageError`.
        """
        archs = list(dict.fromkeys(archs))
        if known_archs() and (unknown := sorted(set(archs) - known_archs())):
            raise UsageError(f"the compiler here knows no {unknown[0]}; it knows {', '.join(sorted(known_archs()))}")
        found = working_candidate(self._checkout, folder).with_config(config or {})
        head, committed = found.head, found.committed
        names = found.task.file.cases[0].case
        if strange := [name for name in case or {} if name not in names]:
            raise UsageError(f"case: the task's cases have no {strange[0]!r}; they have {', '.join(names)}")
        arms = {"candidate": found.files}
        if compare:
            arms["incumbent"] = self._incumbent(folder)
        keys = {
            arm: f"{folder} {head} {content_id(held)} {' '.join(archs)} {compile_s:g} {sorted((case or {}).items())}"
            for arm, held in arms.items()
        }
        job = await self._made(folder, head, committed, arms, keys, archs, compile_s, progress, wait_s, case)
        if job is not None:
            return DumpReport(summary=f"still compiling: {job.message}", state="running", next=job.again)
        dumps = {arm: self._dumps[key] for arm, key in keys.items()}
        for arm, dumped in dumps.items():
            if dumped.status is not Status.PASSED:
                return _failure(arm, dumped)
        candidate = dumps["candidate"]
        if compare:
            before = dumps["incumbent"]
            whole = dumptext.whole_comparison(before, candidate, stage)
            uri = self._keep(whole)
            return self._told(stage, whole, lambda place: dumptext.comparison(before, candidate, uri, whole, place))
        whole = dumptext.whole_text(candidate, stage)
        uri = self._keep(whole)
        return self._told(stage, whole, lambda place: dumptext.report(candidate, stage, uri, whole, place))

    def text(self, identity: str) -> str | None:
        """The whole text of an earlier dump."""
        held = self._texts.get(identity)
        return None if held is None else zlib.decompress(held).decode()

    async def close(self) -> None:
        await self._jobs.close()
        await self._drop_runs()

    def _incumbent(self, folder: PurePosixPath) -> Files:
        """The editable files of the current session's incumbent. Raises `UsageError` if there is none of this task."""
        state = self._checkout.peek()
        if state is None:
            raise UsageError(
                "there is no session, so no incumbent to compare with; call start_session, or leave out compare"
            )
        if PurePosixPath(state.started.task) != folder:
            raise UsageError(
                f"the session is on {state.started.task}, and {folder} has no incumbent; leave out compare"
            )
        return EditableFiles(self._checkout.repository, state.started).at(state.incumbent_commit)

    async def _made(
        self,
        folder: PurePosixPath,
        head: str,
        committed: Files,
        arms: dict[str, Files],
        keys: dict[str, str],
        archs: list[str],
        compile_s: float,
        progress: Progress,
        wait_s: float,
        case: Case | None,
    ) -> Job | None:
        """Have every arm's dump in `_dumps`; the job, if that takes longer than `wait_s`. Raises `UsageError`."""

        async def work(job: Job) -> None:
            runs = await self._runs_of(folder, head, committed)
            for arm, key in keys.items():
                if key in self._dumps:
                    continue

                def tell(text: str, arm: str = arm) -> None:
                    job.tell(f"{arm}: {text}" if len(keys) > 1 else text)

                tell(f"compiling for {', '.join(archs)}")
                self._dumps[key] = await runs.dump(arms[arm], archs, compile_s, LIMIT_S, tell, case)

        _shorten(self._dumps, KEPT_DUMPS, keep=keys.values())
        if any(key not in self._dumps for key in keys.values()):
            job = self._jobs.start("dump_ir", " / ".join(keys.values()), work)
            if not await job.attend(wait_s, progress):
                return job
        return None

    async def _runs_of(self, folder: PurePosixPath, head: str, committed: Files) -> Runs:
        if self._runs is None or self._runs_for != (folder, head):
            await self._drop_runs()
            self._runs = Runs(Backend.CPU, "sm_90", committed, folder)
            self._runs_for = (folder, head)
        return self._runs

    async def _drop_runs(self) -> None:
        runs, self._runs = self._runs, None
        if runs is not None:
            await runs.close()

    def _keep(self, whole: str) -> str:
        """Keep a text; the URI under which it can be read."""
        identity = _identity(whole)
        self._texts[identity] = zlib.compress(whole.encode(), 1)
        self._texts.move_to_end(identity)
        _shorten(self._texts, KEPT_TEXTS, keep=[identity])
        return f"tilewright://dump/{identity}"

    def _told(self, stage: Stage, whole: str, report: Callable[[str], DumpReport]) -> DumpReport:
        """A report; where it cuts `whole`, it names a file that holds all of it."""
        path = self._checkout.sandbox / "dumps" / f"{stage}-{_identity(whole)}.txt"
        place = path.relative_to(self._checkout.root).as_posix()
        told = report(place)
        if place not in told.text and place not in told.summary:
            return told
        try:
            self._checkout.repository.exclude_sandbox()
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or path.read_bytes() != whole.encode():
                write_atomically(path, whole)
            _thin_out(path.parent, path)
        except OSError:  # a checkout that cannot be written to: the resource is still there
            return report(dumptext.RESOURCE)
        return told


def _identity(whole: str) -> str:
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _thin_out(folder: Path, newest: Path) -> None:
    """Delete the oldest files beyond `KEPT_TEXTS`."""
    others = sorted((path for path in folder.glob("*.txt") if path != newest), key=lambda path: path.stat().st_mtime)
    for path in others[: max(len(others) + 1 - KEPT_TEXTS, 0)]:
        path.unlink(missing_ok=True)


def _failure(arm: str, dumped: Dumped) -> DumpReport:
    first = dumped.message.splitlines()[0] if dumped.message else ""
    of = "" if arm == "candidate" else f"the {arm}: "
    return DumpReport(summary=f"{of}{dumped.status.upper()}: {first}", status=dumped.status, message=dumped.message)


def _shorten(held: OrderedDict[str, HeldT], most: int, keep: Collection[str]) -> None:
    """Drop the oldest entries beyond `most`, but none of `keep`."""
    for key in list(held)[: max(len(held) - most, 0)]:
        if key not in keep:
            del held[key]
