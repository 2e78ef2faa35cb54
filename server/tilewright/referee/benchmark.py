"""A case by device programs: captured on public draws, then judged and timed on secret ones, which no worker saw."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from tilewright.errors import UsageError
from tilewright.evaluation.correctness import judge_drawn, layout
from tilewright.evaluation.measurement import Phases
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import Level, Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.statistics import Interval, error_probability
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.evaluation.tensors import TensorSpec, from_buffer, poison, raw_bytes, to_buffer
from tilewright.isolation.fork_server import ForkServer
from tilewright.programs.digests import widened
from tilewright.programs.identity import identity
from tilewright.programs.model import Program
from tilewright.referee.captures import (
    Arguments,
    CallCaptured,
    Entry,
    EntryFailed,
    InProcess,
    arguments_of,
    capture_calls,
    confirm_launches,
)
from tilewright.referee.compare import DRAWS, Unsteady, replayed_in_turns
from tilewright.referee.replayer import Fault, Replayer, ReplayerGone
from tilewright.referee.statistics import LOOKS, Comparison
from tilewright.rules import DEFAULT, Rules
from tilewright.task import Case, case_label
from tilewright.wire import tensors as wire
from tilewright.wire.channel import Sent
from tilewright.wire.memory import Memory

PUBLIC_SEEDS = 1, 2
"""Of the draws on which calls are captured. Nothing that counts is made on them."""
INCUMBENT, CANDIDATE, EMPTY = 0, 1, 2
"""The arms of the replayer, and the program that does nothing."""
JUDGED_BYTES = 2 << 30
"""Of outputs that are compared with the reference in the rounds before the first look, where equal inputs need not give
equal outputs."""
SURE = 1000
"""Samples, and degrees of freedom, of what is known without any: more than any measurement has."""
PUBLIC_BYTES = 4 << 30
"""Of arguments by public draws that are kept: to draw them and to bring them to the host takes its time."""
SHARED_BYTES = 16 << 20
"""Of a tensor that other processes read where it is, instead of a copy of their own. Each takes two descriptors."""
KEPT = 3
"""Candidates whose programs are kept: the incumbent, the candidate, and one more."""
_UNREPLAYABLE = ("out-of-memory", "refused")
_STATUS = {"hang": Status.TIMEOUT, "tampered": Status.TAMPERED}


class Programs:
    """The programs of candidates on a task's cases, captured when they are first asked for."""

    def __init__(self, server: ForkServer, after: Callable[[], None] = lambda: None) -> None:
        """`after`: to be done once the workers of a candidate have ended."""
        self._server = server
        self._after = after
        self._known: dict[str, list[CallCaptured]] = {}
        self._public: dict[str, tuple[Arguments, Arguments]] = {}

    def of(self, code: TaskCode, snapshot: Snapshot, cases: Sequence[Case], label: str) -> list[CallCaptured]:
        """What a candidate does in each case: a program, or why there is none. Raises `WorkerFailure` of the arm
        `label` where it fails."""
        key = f"{code.task.folder} {snapshot.id} {[*map(case_label, cases)]}"
        found = self._known.pop(key, None)
        if found is None:
            found = self._captured(code, snapshot, cases, label)
        self._known[key] = found  # the one that was asked for last is the last to go
        for old in [*self._known][:-KEPT]:
            del self._known[old]
        return found

    def _captured(self, code: TaskCode, snapshot: Snapshot, cases: Sequence[Case], label: str) -> list[CallCaptured]:
        draws: list[tuple[Arguments, Arguments]] = []
        refused: dict[int, str] = {}
        for number, case in enumerate(cases):
            try:
                draws.append(self._draws(code, case))
            except (InProcess, UsageError) as error:
                refused[number] = str(error)
        with _failing(label, self._after):
            made = iter(
                capture_calls(self._server, _entry(code, snapshot), draws, code.task.file.timeout_s, snapshot.cache)
                if draws
                else []
            )
        return [
            CallCaptured(None, refused[number]) if number in refused else next(made) for number in range(len(cases))
        ]

    def _draws(self, code: TaskCode, case: Case) -> tuple[Arguments, Arguments]:
        """A call's arguments by both public draws, which are the same for all candidates. Raises `InProcess`,
        `UsageError`."""
        key = f"{code.task.folder} {case_label(case)}"
        if (found := self._public.get(key)) is not None:
            return found
        first, second = public_inputs(code, case), drawn_inputs(code, case, PUBLIC_SEEDS[1])
        made = described(code, case, first), described(code, case, second)
        taken = sum(len(data) for draws in (made, *self._public.values()) for one in draws for data in one.tensors)
        if taken <= PUBLIC_BYTES:
            self._public[key] = made
        return made

    def confirm(
        self, code: TaskCode, snapshot: Snapshot, cases: Sequence[Case], programs: Sequence[Program], label: str
    ) -> None:
        """Raises `OtherLaunches` where an ordinary call launches other things than its program, `InProcess` where what
        it launches cannot be recorded, and `WorkerFailure` where it fails."""
        draws = [self._draws(code, case)[0] for case in cases]
        with _failing(label, self._after):
            confirm_launches(self._server, _entry(code, snapshot), draws, programs, code.task.file.timeout_s)


@contextlib.contextmanager
def _failing(label: str, after: Callable[[], None]) -> Iterator[None]:
    """Failures of a worker as those of the arm `label`."""
    try:
        try:
            yield
        finally:
            after()
    except EntryFailed as failed:
        raise WorkerFailure(Status(failed.status), str(failed), failed.output, label) from None
    except RuntimeError as error:
        raise WorkerFailure(Status.VOID, str(error), label=label) from None


def _entry(code: TaskCode, snapshot: Snapshot) -> Entry:
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
    )


def public_inputs(code: TaskCode, case: Case) -> Inputs:
    """The arguments of a case on which its call is captured."""
    return code.cached_inputs(case, PUBLIC_SEEDS[0])


def drawn_inputs(code: TaskCode, case: Case, seed: int) -> Inputs:
    """A case's arguments with the values of another seed, but for the numbers, which are part of a program. Raises
    `InProcess` where its tensors have other shapes."""
    public, drawn = public_inputs(code, case), code.inputs(case, seed)
    found = {name: value if isinstance(value, torch.Tensor) else public.get(name) for name, value in drawn.items()}
    if layout(found) != layout(public):
        raise InProcess("its inputs have other shapes, strides or dtypes from draw to draw")
    return found


def described(code: TaskCode, case: Case, inputs: Inputs) -> Arguments:
    """A call's arguments as a worker and the replayer take them; what the call fills holds poison."""
    arguments = code.arguments(case, inputs)
    for name in arguments.keys() - inputs.keys():
        poison(arguments[name])
    return arguments_of(arguments, lambda _, tensor: _content(tensor))


def _content(tensor: torch.Tensor) -> tuple[Sent, wire.TensorSpec]:
    spec = wire.TensorSpec(**TensorSpec.of(tensor).model_dump())
    if not tensor.numel():
        return b"", spec
    raw = raw_bytes(tensor)
    if raw.numel() < SHARED_BYTES:
        return bytes(to_buffer(raw.cpu())), spec
    memory = Memory(raw.numel())
    torch.frombuffer(memory.view, dtype=torch.uint8).copy_(raw)
    memory.freeze()
    return memory, spec


class Timed(NamedTuple):
    """What a case's rounds say. Microseconds for a call by events, of the incumbent, the candidate and an empty
    program; without an incumbent, or where both are the same program, the first two are both the candidate's."""

    found: Comparison
    pairs: int
    same: bool

    @property
    def speedup(self) -> Interval:
        return Interval(0.0, 0.0, 0.0, 0.0, SURE, SURE) if self.same else self.found.speedup


class ProgramBench:
    """Benchmarks one candidate after the other on a replayer."""

    def __init__(
        self,
        code: TaskCode,
        replayer: Replayer,
        rules: Rules = DEFAULT,
        error: float | None = None,
        after_round: Callable[[], None] = lambda: None,
        phases: Phases | None = None,
    ) -> None:
        """`error`: the probability that an interval misses the truth over all looks; default: by `rules`. `phases`
        takes down where the seconds of a case go: "inputs" (drawn and handed over), "judge" and "replay"."""
        self._code = code
        self._replayer = replayer
        self._rules = rules
        self._error = error_probability(rules) if error is None else error
        self._after_round = after_round
        self._phases = Phases() if phases is None else phases

    def case(self, case: Case, candidate: Program, incumbent: Program | None, seeds: Seeds) -> Timed:
        """Replay a candidate's program, in turns with the incumbent's if there is one and it is another. Raises
        `InProcess` where they cannot be replayed, and `WorkerFailure` where the candidate is wrong or fails, or the
        incumbent does (void)."""
        same = incumbent is not None and identity(candidate) == identity(incumbent)
        incumbent = None if same else incumbent
        try:
            with self._phases("inputs"):
                drawn = [drawn_inputs(self._code, case, seeds.next()) for _ in range(DRAWS)]
        except InProcess as why:  # the draws that it was captured on had its shapes
            raise WorkerFailure(
                Status.VOID, f"{case_label(case)}: {why}; let shapes depend on the case alone"
            ) from None
        first = candidate if incumbent is None else incumbent
        looks = LOOKS if incumbent is not None else LOOKS[:1]
        contract = self._code.contract(case, drawn[0])

        def judge(draw: int, outputs: list[memoryview]) -> None:
            with self._phases("judge"):
                self._judge(case, candidate, drawn[draw], outputs, contract)

        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # the replayer needs the room
        try:
            with self._phases("inputs"):
                draws = [described(self._code, case, inputs).tensors for inputs in drawn]
                self._replayer.load([first, candidate], draws)
            steady = self._code.task.file.deterministic
            outputs_bytes = DRAWS * sum(tensor.size for tensor in candidate.layout.outputs)
            share = 0.0 if steady else min(JUDGED_BYTES / max(outputs_bytes * looks[0], 1), 1.0)
            comparison = Comparison(error_probability=self._error, rules=self._rules)
            with self._phases("replay"):
                found, pairs = replayed_in_turns(
                    self._replayer, DRAWS, comparison, looks, judge, steady, share, self._after_round
                )
        except Fault as fault:
            raise self._failure(case, fault, alone=incumbent is None) from None
        except Unsteady:
            text = f"{case_label(case)}: of calls that were replayed on the same values, some gave other outputs"
            raise WorkerFailure(Status.NONDETERMINISTIC, text) from None
        except ReplayerGone as gone:
            raise WorkerFailure(Status.VOID, str(gone)) from None
        return Timed(found, pairs, same)

    def _judge(
        self, case: Case, program: Program, inputs: Inputs, outputs: list[memoryview], contract: list[torch.Tensor]
    ) -> None:
        found = judge_drawn(self._code, case, inputs, self._opened(program, outputs), contract)
        if found.status is not Status.PASSED:
            text = f"{case_label(case)}, in a call that was replayed on other values: {found.message}"
            raise WorkerFailure(found.status, text)

    def _opened(self, program: Program, outputs: list[memoryview]) -> list[torch.Tensor]:
        opened = []
        for tensor, data in zip(program.layout.outputs, outputs, strict=True):
            start, _ = widened(tensor.at, tensor.size)
            own = data[tensor.at - start :][: tensor.size]
            opened.append(from_buffer(TensorSpec(**tensor.spec.model_dump()), own).to(self._code.device))
        return opened

    @staticmethod
    def _failure(case: Case, fault: Fault, alone: bool) -> Exception:
        """What a fault of the replayer means for the candidate."""
        if fault.kind in _UNREPLAYABLE:
            grown = alone or fault.kind == "out-of-memory"  # the incumbent fits when it is alone
            return InProcess(f"the replayer: {fault}", CANDIDATE if grown else fault.arm)
        text = f"{case_label(case)}, replayed: {fault.kind}: {fault}"
        if fault.arm == CANDIDATE or (alone and fault.arm is not None):
            return WorkerFailure(_STATUS.get(fault.kind, Status.CRASHED), text)
        who = "the incumbent failed" if fault.arm == INCUMBENT else "neither version fails alone"
        return WorkerFailure(Status.VOID, f"{who}: {text}")


def values_of(timed: Timed, alone: bool) -> dict[str, Any]:
    """What a case's rounds say, as fields of a `CaseTiming`; latencies in ms. `alone`: there is no incumbent."""
    found, values = timed.found, dict[str, Any]()
    if not alone:
        speedup, low, high = timed.speedup.ratio()
        values = {
            "incumbent_ms": found.mean_us(INCUMBENT) / 1e3,
            "speedup": speedup,
            "speedup_low": low,
            "speedup_high": high,
            "same": timed.same,
            "borne_out": timed.same or found.borne_out,
        }
    return values | {
        "level": Level.REPLAYED,
        "latency_ms": found.mean_us(CANDIDATE) / 1e3,
        "empty_ms": found.mean_us(EMPTY) / 1e3,
        "pairs": timed.pairs,
        "samples": [
            tuple(
                float(f"{us / 1e3:.6g}")
                for us in (one.events[CANDIDATE], one.events[INCUMBENT], one.wall[CANDIDATE], one.wall[INCUMBENT])
            )
            for one in found.rounds
        ],
    }
