"""A session's end: its first program against its last. No GPU is needed: results are put in the evaluator's place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FASTER_KERNEL, SCALE_TOML
from tests.stage import edit, journal_of, play, quiet, start
from tests.unit.programs.made import OUT, fill, program
from tilewright.errors import UsageError
from tilewright.evaluation.results import (
    BenchmarkResult,
    CaseTiming,
    CorrectnessResult,
    Level,
    Status,
    StoredProgram,
)
from tilewright.programs.format import encoded, program_file
from tilewright.programs.identity import identity
from tilewright.programs.model import Program, digest_of
from tilewright.repository import Files
from tilewright.rules import Rules
from tilewright.session import loop as looping
from tilewright.session.checkout import Checkout
from tilewright.session.loop import Loop
from tilewright.session.reports import IterationReport
from tilewright.session.runs import Runs
from tilewright.session.verification import Line, Mark, verify
from tilewright.session.whole import CasePrograms
from tilewright.task import Case

CASE: Case = {"N": 512, "dtype": "float32"}


def figures(speedup: float | None) -> dict[str, float]:
    if speedup is None:
        return {}
    return {"speedup": speedup, "speedup_low": speedup - 0.002, "speedup_high": speedup + 0.002}


def replayed(speedup: float | None, cases: Sequence[CaseTiming] = ()) -> BenchmarkResult:
    return BenchmarkResult(
        status=Status.PASSED, level=Level.REPLAYED, latency_ms=1.0, cases=[*cases], **figures(speedup)
    )


def program_of(speedup: float | None) -> Program:
    """The program of a candidate that says so; None: the baseline's."""
    return program([fill(OUT, round(1000 * (speedup or 0)))])


@dataclass
class Evaluator:
    """Gives what a test wants it to: each run of a benchmark says the next of `speedups`, the comparison `whole`."""

    speedups: list[float] = field(default_factory=list)
    whole: BenchmarkResult = field(default_factory=lambda: replayed(1.2))
    note: str = ""
    """Why no program of a candidate is written."""
    slow_s: float = 0.0
    compared: list[tuple[Path, Path]] = field(default_factory=list)
    """The programs that were compared."""

    def benchmark(self, incumbent: Files | None, store: Path) -> BenchmarkResult:
        speedup = self.speedups.pop(0) if incumbent is not None else None
        made = program_of(speedup)
        note, raw = self.note if incumbent is not None else "", encoded(made)
        stored = StoredProgram(identity=identity(made), sha256=digest_of(raw), size=len(raw), note=note)
        store.mkdir(exist_ok=True)
        if not note:
            program_file(store, stored.sha256).write_bytes(raw)
        timing = CaseTiming(case=CASE, level=Level.REPLAYED, latency_ms=1.0, programs=[stored], **figures(speedup))
        return replayed(speedup, [timing])


@pytest.fixture
def evaluator(monkeypatch: pytest.MonkeyPatch, asked_once: None) -> Evaluator:
    made = Evaluator()

    async def correctness(*_: object) -> CorrectnessResult:
        return CorrectnessResult(status=Status.PASSED)

    async def benchmark(
        _: Runs, files: Files, incumbent: Files | None, *__: object, store: Path, **more: Any
    ) -> BenchmarkResult:
        return made.benchmark(incumbent, store)

    async def whole(_: Runs, pairs: Sequence[CasePrograms], folder: Path, *__: object) -> BenchmarkResult:
        await asyncio.sleep(made.slow_s)
        made.compared += [
            (program_file(folder, pair.first.sha256), program_file(folder, pair.last.sha256)) for pair in pairs
        ]
        return made.whole

    for name, method in (("correctness", correctness), ("benchmark", benchmark), ("whole", whole)):
        monkeypatch.setattr(Runs, name, method)
    return made


@pytest.fixture
def root(make_task: Callable[..., Path]) -> Path:
    return make_task(toml=SCALE_TOML.partition("[hidden]")[0])


async def kept(loop: Loop, evaluator: Evaluator, *speedups: float, wait_s: float = 60) -> IterationReport:
    """A session that keeps candidates which say so, until its iterations are done; the last reply."""
    report = None
    if loop.status().phase == "none":
        await start(loop, rules=Rules(max_iterations=len(speedups)))
    for number, speedup in enumerate(speedups):
        edit(loop.checkout.root, f"{FASTER_KERNEL}\nSTEP = {number}\n")
        evaluator.speedups = [speedup, speedup]
        await loop.run_correctness(quiet)
        await loop.run_benchmark(quiet)
        loop.checkpoint()
        report = await loop.append_result(f"step {number}", quiet, wait_s=wait_s)
    assert report is not None
    return report


def verified(root: Path) -> list[Line]:
    """What `verify` says of the comparison; nothing else fails."""
    lines = verify(Checkout(root))
    assert not [line for line in lines if line.mark is Mark.FAIL and line.what != "first to last"]
    return [line for line in lines if line.what == "first to last"]


def kinds(root: Path) -> list[str]:
    return [entry.kind for entry in Checkout(root).journal(journal_of(root).parent).entries]


def test_the_row_that_ends_a_session_compares_its_first_program_with_its_last(root: Path, evaluator: Evaluator) -> None:
    evaluator.whole = evaluator.whole.model_copy(update={"resolution": 0.002})

    async def scene(loop: Loop) -> None:
        report = await kept(loop, evaluator, 1.1, 1.09)
        assert (report.state, report.advice.action) == ("done", "stop")
        said = (
            "the last program against the first: 1.2000x (1.1980 to 1.2020) measured directly, "
            "1.1990x (1.1959 to 1.2021) as the product of 2 keeps; this machine resolves 0.2% today"
        )
        assert report.summary.endswith(said)
        assert report.summary.startswith("iteration 2: KEEP")
        status = loop.status()
        assert (status.phase, said in status.summary) == ("ended", True)
        with pytest.raises(UsageError, match=r"the session has ended .*measured directly"):
            await loop.append_result("again", quiet)

    play(root, scene)
    assert kinds(root)[-3:] == ["row", "begun", "ended"]
    assert [(first.stem, last.stem) for first, last in evaluator.compared] == [
        tuple(digest_of(encoded(program_of(speedup))) for speedup in (None, 1.09))
    ]
    assert [(line.mark, "measured directly" in line.detail) for line in verified(root)] == [(Mark.OK, True)]
    assert "against" not in (root / "sandbox" / "perf_results.md").read_text()


def test_keeps_that_do_not_add_up_are_said(root: Path, evaluator: Evaluator) -> None:
    evaluator.whole = replayed(1.0)

    async def scene(loop: Loop) -> None:
        report = await kept(loop, evaluator, 1.05, 1.25)
        for summary in (report.summary, loop.status().summary):
            assert "the last program against the first: 1.0000x" in summary
            assert "the two lie apart: one kept edit undid a part of another" in summary

    play(root, scene)
    (line,) = verified(root)
    assert (line.mark, "the two lie apart" in line.detail) == (Mark.WARN, True)


def test_the_same_call_again_waits_for_the_comparison(root: Path, evaluator: Evaluator) -> None:
    evaluator.slow_s = 1.0

    async def scene(loop: Loop) -> None:
        first = await kept(loop, evaluator, 1.2, wait_s=0.05)
        assert (first.state, first.next.startswith("call append_result again")) == ("running", True)
        assert "the row is on record" in first.summary
        assert loop.status().state == "running"
        with pytest.raises(UsageError, match="append_result is running"):
            loop.revert()
        second = await loop.append_result("step 0", quiet)
        assert (second.state, second.row, "measured directly" in second.summary) == ("done", first.row, True)
        with pytest.raises(UsageError, match="the session has ended"):
            await loop.append_result("step 0", quiet)

    play(root, scene)
    assert kinds(root).count("row") == 2
    assert kinds(root)[-2:] == ["begun", "ended"]


def test_a_server_that_ended_in_the_comparison_leaves_a_session_that_ends_without_it(
    root: Path, evaluator: Evaluator
) -> None:
    evaluator.slow_s = 30.0
    text = "the first program was not compared with the last: the server ended before it"

    async def first(loop: Loop) -> None:
        assert (await kept(loop, evaluator, 1.2, wait_s=0.05)).state == "running"

    async def second(loop: Loop) -> None:
        assert loop.status().next.startswith("stop and report the table")
        with pytest.raises(UsageError, match=rf"the session has ended .*{text}"):
            await loop.append_result("step 0", quiet)
        assert text in loop.status().summary

    play(root, first)
    play(root, second)
    assert kinds(root)[-3:] == ["row", "begun", "ended"]
    assert [(line.mark, line.detail.startswith(text)) for line in verified(root)] == [(Mark.WARN, True)]


def test_what_was_not_written_is_not_compared(root: Path, evaluator: Evaluator) -> None:
    evaluator.note = "not written: the session's programs would take over 2048 MiB"

    async def scene(loop: Loop) -> None:
        report = await kept(loop, evaluator, 1.2)
        assert report.state == "done"
        assert "not compared with the last: the program of what was kept last on N=512" in report.summary

    play(root, scene)
    assert evaluator.compared == []
    assert [line.mark for line in verified(root)] == [Mark.WARN]


def test_a_comparison_that_fails_ends_the_session_all_the_same(root: Path, evaluator: Evaluator) -> None:
    evaluator.whole = BenchmarkResult(status=Status.VOID, message="GPU-1 is in use by process 7")

    async def scene(loop: Loop) -> None:
        report = await kept(loop, evaluator, 1.2)
        assert report.summary.endswith("the first program was not compared with the last: GPU-1 is in use by process 7")
        assert loop.status().phase == "ended"

    play(root, scene)
    assert [line.mark for line in verified(root)] == [Mark.WARN]


def test_a_last_version_that_is_wrong_on_new_values_fails(root: Path, evaluator: Evaluator) -> None:
    evaluator.whole = BenchmarkResult(status=Status.WRONG_VALUES, message="N=512: 3 of 512 elements are wrong")
    play(root, lambda loop: kept(loop, evaluator, 1.2))
    assert [line.mark for line in verified(root)] == [Mark.FAIL]


@pytest.mark.parametrize(
    ("holder", "mark", "text"),
    [
        ("", Mark.OK, "the last program against the first"),
        ("process 7", Mark.WARN, "not compared with the last: the GPU is in use by process 7"),
    ],
)
def test_a_person_ends_a_session(
    root: Path, evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch, holder: str, mark: Mark, text: str
) -> None:
    monkeypatch.setattr(looping, "whose", lambda uuid: holder)

    async def scene(loop: Loop) -> None:
        await start(loop)
        await kept(loop, evaluator, 1.2)
        assert text in await loop.end("enough", quiet)
        assert loop.status().phase == "ended"

    play(root, scene)
    assert [(line.mark, text in line.detail) for line in verified(root)] == [(mark, True)]


def test_a_session_that_kept_nothing_has_nothing_to_compare(root: Path, evaluator: Evaluator) -> None:
    async def scene(loop: Loop) -> None:
        await start(loop)
        assert "compared" not in await loop.end("enough", quiet)

    play(root, scene)
    assert verified(root) == []


def test_a_baseline_that_hidden_sizes_show_to_be_wrong_ends_the_session(
    make_task: Callable[..., Path], evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_task()
    wrong = CorrectnessResult(status=Status.VOID, message="N=3", baseline_wrong=True)
    answers = [CorrectnessResult(status=Status.PASSED), wrong]

    async def widely(*_: object, **__: object) -> CorrectnessResult:
        return answers.pop(0)

    monkeypatch.setattr(Runs, "widely", widely)

    async def scene(loop: Loop) -> None:
        await start(loop)
        edit(root, FASTER_KERNEL)
        evaluator.speedups = [1.2, 1.2]
        await loop.run_correctness(quiet)
        await loop.run_benchmark(quiet)
        status = loop.status()
        assert (status.phase, "the baseline itself is wrong: N=3" in status.summary) == ("ended", True)

    play(root, scene)
