"""`dump_ir`: what the compiler makes of the working tree's kernels, for any architecture, on any machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Literal

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
from tilewright.session.dumptext import Stage
from tilewright.session.jobs import WAIT_S, Job, Jobs, Progress
from tilewright.session.outcomes import Dumped
from tilewright.session.reports import DumpReport
from tilewright.session.runs import Runs
from tilewright.task import Backend, Case

COMPILE_S = 60.0
LIMIT_S = 600.0


class Dumper:
    """Dumps of one checkout's tasks. The latest text of each stage is a file in the sandbox."""

    def __init__(self, checkout: Checkout, jobs: Jobs) -> None:
        """`jobs` is the server's."""
        self._checkout = checkout
        self._jobs = jobs
        self._runs: Runs | None = None
        self._runs_for: tuple[PurePosixPath, str] | None = None
        self._dumps: dict[str, Dumped] = {}
        """Those that the latest call showed, by what was compiled: another stage of them may be asked for."""

    async def dump(
        self,
        folder: PurePosixPath,
        archs: list[str],
        stage: Stage,
        progress: Progress,
        wait_s: float = WAIT_S,
        compare: Literal["incumbent"] | None = None,
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
        names = found.task.file.cases[0].case
        if strange := [name for name in case or {} if name not in names]:
            raise UsageError(f"case: the task's cases have no {strange[0]!r}; they have {', '.join(names)}")
        arms = {"candidate": found.files}
        if compare:
            arms["incumbent"] = self._incumbent(folder)
        about = f"{folder} {found.head} {' '.join(archs)} {compile_s:g} {sorted((case or {}).items())}"
        keys = {arm: f"{about} {content_id(files)}" for arm, files in arms.items()}

        async def work(job: Job) -> None:
            if self._runs is None or self._runs_for != (folder, found.head):
                await self.close()
                self._runs, self._runs_for = Runs(Backend.CPU, "sm_90", found.committed, folder), (folder, found.head)
            for arm, key in keys.items():
                if key not in self._dumps:
                    self._dumps[key] = await self._runs.dump(arms[arm], archs, compile_s, LIMIT_S, job.tell, case)

        if not self._dumps.keys() >= {*keys.values()}:
            job = self._jobs.start("dump_ir", " / ".join(keys.values()), work)
            self._dumps = {key: self._dumps[key] for key in keys.values() if key in self._dumps}
            if not await job.attend(wait_s, progress):
                return DumpReport(summary=f"still compiling: {job.message}", state="running", next=job.again)
        dumps = {arm: self._dumps[key] for arm, key in keys.items()}
        for arm, dumped in dumps.items():
            if dumped.status is not Status.PASSED:
                return _failure(arm, dumped)
        candidate, before = dumps["candidate"], dumps.get("incumbent")
        text = dumptext.whole_text(candidate, before, stage)
        path = self._checkout.sandbox / "dumps" / f"{stage}{'-compared' if compare else ''}.txt"
        self._checkout.repository.exclude_sandbox()
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_atomically(path, text)
        return dumptext.report(candidate, before, stage, text, path.relative_to(self._checkout.root).as_posix())

    async def close(self) -> None:
        """End the referee."""
        runs, self._runs = self._runs, None
        if runs is not None:
            await runs.close()

    def _incumbent(self, folder: PurePosixPath) -> Files:
        """The editable files of the current session's incumbent. Raises `UsageError` if there is none of this task."""
        state = self._checkout.peek()
        if state is None or PurePosixPath(state.started.task) != folder:
            raise UsageError(
                f"there is no session on {folder}, so no incumbent to compare with; call start_session, or leave out "
                "compare"
            )
        return EditableFiles(self._checkout.repository, state.started).at(state.incumbent_commit)


def _failure(arm: str, dumped: Dumped) -> DumpReport:
    first = dumped.message.splitlines()[0] if dumped.message else ""
    of = "" if arm == "candidate" else f"the {arm}: "
    return DumpReport(summary=f"{of}{dumped.status.upper()}: {first}", status=dumped.status, message=dumped.message)
