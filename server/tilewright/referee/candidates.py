"""The programs of candidates, on public draws: captured when they are asked for, or beside a check that runs anyway."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from threading import Event

from tilewright.errors import UsageError
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import CAPTURED_ANEW, Raced, Status
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.taskcode import TaskCode
from tilewright.isolation.fork_server import ForkServer
from tilewright.programs.model import Program, ProgramError
from tilewright.referee import kept
from tilewright.referee.arguments import PUBLIC_SEEDS, described, drawn_inputs, public_inputs
from tilewright.referee.capture_worker import Entry, EntryFailed, InProcess
from tilewright.referee.captures import (
    Arguments,
    CallCaptured,
    OrdinaryCalls,
    OtherLaunches,
    capture_calls,
    confirm_launches,
)
from tilewright.referee.variants import capture_variants
from tilewright.task import Case, TaskError, case_label
from tilewright.wire.channel import Sent, as_bytes
from tilewright.wire.messages import Recorded

PUBLIC_BYTES = 4 << 30
"""Of arguments by public draws that are kept: to draw them and to bring them to the host takes its time."""
AHEAD = 64
"""Of the GPU's memory, the part that a call's arguments and what it allocates may take for it to be captured beside a
check: three processes hold them then, next to those that are checked and to the reference in float64."""
GRACE_S = 5.0
"""For which other work may go on once the check is done."""
POLL_S = 0.1


class Programs:
    """The programs of candidates on a task's cases, and what their ordinary calls launch."""

    def __init__(self, server: ForkServer) -> None:
        self._server = server
        self._last: tuple[str, list[CallCaptured]] = "", []
        self._again: tuple[str, list[CallCaptured]] = "", []
        self._tried: tuple[str, OrdinaryCalls | None] = "", None
        self._recorded: tuple[str, list[Recorded]] = "", []
        self._public: dict[str, tuple[Arguments, Arguments]] = {}
        self._peaks: dict[str, int] = {}

    def of(self, code: TaskCode, snapshot: Snapshot, cases: Sequence[Case], label: str) -> list[CallCaptured]:
        """What a candidate does in each case: programs, or why there are none. The last candidate's are known. See
        `anew`."""
        key = _key(code, snapshot, cases)
        if key != self._last[0]:
            self._last = key, self.anew(code, snapshot, cases, label)
        return [*self._last[1]]

    def anew(self, code: TaskCode, snapshot: Snapshot, cases: Sequence[Case], label: str) -> list[CallCaptured]:
        """The same, captured now, or once more beside the last check. Raises `WorkerFailure` of the arm `label` where
        it fails."""
        (key, found), self._again = self._again, ("", [])
        return found if key == _key(code, snapshot, cases) else self._captured(code, snapshot, cases, label)

    def of_incumbent(
        self,
        code: TaskCode,
        snapshot: Snapshot,
        cases: Sequence[Case],
        files: Mapping[str, Sequence[Path] | str],
        label: str,
    ) -> list[CallCaptured]:
        """What the incumbent does in each case: the programs in `files`, which were kept of it, whatever it launches
        today. Where there are none it is captured. A text in their place says why they will not do. Raises
        `WorkerFailure`, void where a file holds another program than the one on record."""
        found: dict[str, CallCaptured] = {}
        why: dict[str, str] = {}
        for name, paths in ((name, files[name]) for name in map(case_label, cases) if name in files):
            try:
                if isinstance(paths, str):
                    raise ProgramError(paths)
                found[name] = CallCaptured(tuple(map(kept.read, paths)))
            except kept.Altered as error:
                text = f"{name}: {error}; put the file back from another copy of the session"
                raise WorkerFailure(Status.VOID, text) from None
            except FileNotFoundError as error:
                why[name] = f"{Path(error.filename).name} is not there"
            except (OSError, ProgramError) as error:
                why[name] = str(error)
        left = [case for case in cases if case_label(case) not in found]
        for case, one in zip(left, self.anew(code, snapshot, left, label) if left else [], strict=True):
            said = why.get(case_label(case))
            found[case_label(case)] = replace(one, note=f"{CAPTURED_ANEW}: {said}" if said else "")
        return [found[case_label(case)] for case in cases]

    def confirm(
        self,
        code: TaskCode,
        snapshot: Snapshot,
        cases: Sequence[Case],
        programs: Sequence[Sequence[Program]],
        label: str,
    ) -> list[tuple[Recorded, list[Program]]]:
        """What an ordinary call launches in each case, and how long it takes, with those of the case's programs that
        launch the same: nothing else goes on meanwhile. Raises `OtherLaunches` where none does, `InProcess` where what
        a call launches cannot be recorded, and `WorkerFailure` where it fails."""
        (key, recorded), self._recorded = self._recorded, ("", [])
        if key != _key(code, snapshot, cases):
            with self._failing(label), self._ordinary(code, snapshot, cases) as calls:
                recorded = calls.make()
        return [*zip(recorded, confirm_launches(recorded, programs), strict=True)]

    def _ordinary(self, code: TaskCode, snapshot: Snapshot, cases: Sequence[Case]) -> OrdinaryCalls:
        draws = [self._draws(code, case)[0] for case in cases]
        return OrdinaryCalls(self._server, entry_of(code, snapshot), draws, code.task.file.timeout_s)

    def public(self, code: TaskCode, case: Case) -> Sequence[Sent]:
        """The contents of the inputs of an ordinary call."""
        return self._draws(code, case)[0].tensors

    def with_inputs(self, code: TaskCode, case: Case, program: Program) -> Program:
        """A case's program, with the arguments of a public draw as the contents of its inputs."""
        draw = self._draws(code, case)[0]
        names = [one.name for one in draw.described if one.tensor is not None]
        return replace(program, examples=dict(zip(names, map(as_bytes, draw.tensors), strict=True)))

    def of_each(
        self,
        code: TaskCode,
        snapshots: Sequence[Snapshot],
        cases: Sequence[Case],
        room: int,
        look: Callable[[], None],
        tell: Callable[[str], None],
    ) -> list[list[Program] | Raced]:
        """The programs of many versions in each case, captured once, or how a version failed: see
        `capture_variants`."""
        try:
            draws = [self._draws(code, case)[0] for case in cases]
            entries = [entry_of(code, snapshot) for snapshot in snapshots]
            return capture_variants(self._server, entries, draws, code.task.file.timeout_s, room, look, tell)
        except TaskError:
            raise
        except (InProcess, UsageError) as error:
            raise WorkerFailure(Status.NOT_REPLAYED, str(error)) from None

    @contextlib.contextmanager
    def captured_aside(
        self, code: TaskCode, snapshot: Snapshot, cases: Sequence[Case], room: int, again: bool = False
    ) -> Iterator[Event | None]:
        """Capture a candidate's calls while the block runs, and a little longer, until the block sets what it is given;
        None where nothing is to be done. `again`: once more, for `anew`, and make its ordinary calls in the process
        that `confirm` asks, so that compilers are done. `room`: the bytes of the GPU's memory. A call that fails beside
        other work, that is no program, or that may have tuned, whose choice the other work disturbs, counts for
        nothing: it is captured when it is asked for. So are all where the block failed."""
        self.close()
        key = _key(code, snapshot, cases)
        known = key == self._last[0]
        if known != again or not all(one.fixed for one in self._last[1] if again) or not self._fits(code, cases, room):
            yield None
            return
        stop, given_up = Event(), True
        try:
            with ThreadPoolExecutor(1) as thread:
                made = thread.submit(self._with_calls if again else self._captured, code, snapshot, cases, "", stop)
                try:
                    yield stop
                    given_up = stop.is_set()
                    wait([made], 0.0 if given_up else GRACE_S)
                finally:
                    stop.set()
        finally:
            if given_up:
                self.close()
        if given_up:
            return
        try:
            if again:
                self._again = key, made.result()
            else:
                self._last = key, made.result()
        except (WorkerFailure, InProcess, OtherLaunches):
            pass  # whoever asks for it finds out why
        except Exception as error:  # no check is to fail by it
            print(f"beside a check: {error!r}", file=sys.stderr)

    def _with_calls(
        self, code: TaskCode, snapshot: Snapshot, cases: Sequence[Case], label: str, stop: Event
    ) -> list[CallCaptured]:
        """What was captured, and meanwhile its ordinary calls, if they can be made."""
        with ThreadPoolExecutor(1) as thread, contextlib.ExitStack() as stack:
            calls = stack.enter_context(self._ordinary(code, snapshot, cases))
            trying = thread.submit(calls.make)
            found = self._captured(code, snapshot, cases, label, stop)
            while not (trying.done() or stop.is_set()):
                wait([trying], POLL_S)
            if trying.done() and trying.exception() is None:  # else whoever asks for them finds out why
                stack.pop_all()
                self._tried = _key(code, snapshot, cases), calls
        return found

    def record(self, code: TaskCode, snapshot: Snapshot, cases: Sequence[Case]) -> None:
        """Make the ordinary calls of a candidate for `confirm`, if a process has tried them; that ends. Nothing else
        goes on meanwhile, and nothing is replayed yet."""
        (key, calls), self._recorded = self._tried, ("", [])
        try:
            if calls is not None and key == _key(code, snapshot, cases):
                self._recorded = key, calls.make()
        except (EntryFailed, InProcess, RuntimeError):
            pass  # they are made anew
        finally:
            self.close()

    def close(self) -> None:
        """End the process that has tried ordinary calls."""
        if (calls := self._tried[1]) is not None:
            calls.close()
        self._tried = "", None

    def _fits(self, code: TaskCode, cases: Sequence[Case], room: int) -> bool:
        """Whether the arguments of all cases are small beside the GPU's memory, with what calls took so far."""
        for case in cases:
            if AHEAD * code.work(case).bytes > room:  # it is not even drawn
                return False
            with contextlib.suppress(InProcess, UsageError):
                self._draws(code, case)
            place = _place(code, case)
            if (draws := self._public.get(place)) is None:  # there is none, or it is too large to be kept
                return False
            if AHEAD * (sum(map(len, draws[0].tensors)) + self._peaks.get(place, 0)) > room:
                return False
        return True

    def _captured(
        self, code: TaskCode, snapshot: Snapshot, cases: Sequence[Case], label: str, stop: Event | None = None
    ) -> list[CallCaptured]:
        """What is captured until `stop` is set. Raises `WorkerFailure` of the arm `label` where it fails."""
        draws: list[tuple[Arguments, Arguments]] = []
        refused: dict[int, str] = {}
        for number, case in enumerate(cases):
            try:
                draws.append(self._draws(code, case))
            except TaskError:  # a fault of the task is no candidate's
                raise
            except (InProcess, UsageError) as error:
                refused[number] = str(error)
        entry, limit_s = entry_of(code, snapshot), code.task.file.timeout_s
        with self._failing(label):
            captured = capture_calls(self._server, entry, draws, limit_s, snapshot.cache, stop) if draws else []
        made = iter(captured)
        found = [
            CallCaptured(reason=refused[number]) if number in refused else next(made) for number in range(len(cases))
        ]
        for case, one in zip(cases, found, strict=True):
            place = _place(code, case)
            self._peaks[place] = max(self._peaks.get(place, 0), one.peak_bytes)
        return found

    @contextlib.contextmanager
    def _failing(self, label: str) -> Iterator[None]:
        """Failures of a worker as those of the arm `label`."""
        try:
            yield
        except EntryFailed as failed:
            raise WorkerFailure(Status(failed.status), str(failed), failed.output, label) from None
        except RuntimeError as error:
            raise WorkerFailure(Status.VOID, str(error), label=label) from None

    def _draws(self, code: TaskCode, case: Case) -> tuple[Arguments, Arguments]:
        """A call's arguments by both public draws, which are the same for all candidates. Raises `InProcess`,
        `UsageError`."""
        key = _place(code, case)
        if (found := self._public.get(key)) is not None:
            return found
        first, second = public_inputs(code, case), drawn_inputs(code, case, PUBLIC_SEEDS[1])
        made = described(code, case, first), described(code, case, second)
        taken = sum(len(data) for draws in (made, *self._public.values()) for one in draws for data in one.tensors)
        if taken <= PUBLIC_BYTES:
            self._public[key] = made
        return made


def _key(code: TaskCode, snapshot: Snapshot, cases: Sequence[Case]) -> str:
    return f"{code.task.folder} {snapshot.id} {[*map(case_label, cases)]}"


def _place(code: TaskCode, case: Case) -> str:
    return f"{code.task.folder} {case_label(case)}"


def entry_of(code: TaskCode, snapshot: Snapshot) -> Entry:
    """What a worker loads of a candidate."""
    task, folder = code.task, snapshot.root / snapshot.task
    return Entry(
        folder=folder,
        module=task.module,
        function=task.function,
        frontend=task.file.frontend,
        import_paths=tuple(folder / path for path in task.file.python_path),
        outputs=tuple(task.file.outputs),
        readable=(snapshot.root,),
        label=task.file.entry,
        root=snapshot.root,
    )
