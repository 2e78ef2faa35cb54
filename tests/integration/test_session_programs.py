"""A session's device programs: what stays of them, what `verify` says of them, and that an archive carries them."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import FASTER_KERNEL, SCALE_TOML, SLOWER_KERNEL
from tests.stage import judged, play, quiet, start
from tests.unit.programs.made import OUT, W, fill, program
from tilewright.evaluation.results import BenchmarkResult, CaseTiming, CorrectnessResult, Level, Status, StoredProgram
from tilewright.programs.format import encoded, program_file
from tilewright.programs.identity import identity
from tilewright.programs.model import Block, Program, digest_of
from tilewright.repository import Files
from tilewright.rules import Rules
from tilewright.session.checkout import Checkout
from tilewright.session.export import export_session
from tilewright.session.loop import Loop
from tilewright.session.programs import programs_folder
from tilewright.session.runs import Runs
from tilewright.session.verification import Mark, verify

HELD = b"\x07" * 4096
BASELINE, KEPT, REVERTED, PENDING = (program([fill(OUT, number)], held=HELD) for number in range(4))


def holding_nothing(number: int) -> Program:
    made = program([fill(OUT, number)])
    blocks = tuple(Block(at=one.at, size=one.size, role="fresh") if one.at == W else one for one in made.layout.blocks)
    return Program(made.layout.model_copy(update={"blocks": blocks}), made.images)


PLAIN = holding_nothing(9)


def named(made: Program) -> str:
    return digest_of(encoded(made))


@pytest.fixture
def stage(
    make_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, asked_once: None
) -> Iterator[SimpleNamespace]:
    """A session whose next benchmark runs time `programs`, at `speedup` over the incumbent. `note`: why they are not
    written."""
    found = SimpleNamespace(
        root=make_task(toml=SCALE_TOML.partition("[hidden]")[0]), programs=[BASELINE], speedup=1.0, note="", kept=[]
    )

    async def benchmark(
        _: Runs,
        files: Files,
        incumbent: Files | None,
        *__: object,
        store: Path,
        kept: dict[str, list[str]],
        **___: object,
    ) -> BenchmarkResult:
        store.mkdir(exist_ok=True)
        found.kept.append([Path(one) for each in kept.values() for one in each])
        cases = []
        for number, made in enumerate(found.programs):
            raw = encoded(made)
            stored = StoredProgram(identity=identity(made), sha256=digest_of(raw), size=len(raw), note=found.note)
            if not found.note:
                program_file(store, stored.sha256).write_bytes(raw)
            case = {"N": 64 + number}
            cases.append(CaseTiming(case=case, level=Level.REPLAYED, latency_ms=1 / found.speedup, programs=[stored]))
        figures = {}
        if incumbent is not None:
            low, high = found.speedup - 0.01, found.speedup + 0.01
            figures = {"speedup": found.speedup, "speedup_low": low, "speedup_high": high}
        return BenchmarkResult(
            status=Status.PASSED, level=Level.REPLAYED, latency_ms=1 / found.speedup, cases=cases, **figures
        )

    async def correctness(*_: object) -> CorrectnessResult:
        return CorrectnessResult(status=Status.PASSED)

    monkeypatch.setattr(Runs, "correctness", correctness)
    monkeypatch.setattr(Runs, "benchmark", benchmark)
    yield found


def folder_of(root: Path) -> Path:
    state = Checkout(root).peek()
    assert state is not None
    return programs_folder(Checkout(root).sandbox, state.started.session)


def names(root: Path) -> set[str]:
    return {path.name for path in folder_of(root).iterdir()}


def said(root: Path) -> list[tuple[Mark, str]]:
    return [(line.mark, line.detail) for line in verify(Checkout(root)) if line.what == "programs"]


async def tried(loop: Loop, stage: SimpleNamespace, source: str, speedup: float, *programs: Program) -> None:
    """A candidate that is kept if it gains, else reverted."""
    stage.programs, stage.speedup = list(programs), speedup
    await judged(loop, source)
    if speedup > 1:
        loop.checkpoint()
    else:
        loop.revert()
    await loop.append_result("another", quiet)


async def whole_session(loop: Loop, stage: SimpleNamespace) -> None:
    await start(loop, rules=Rules(patience=4))
    await tried(loop, stage, FASTER_KERNEL, 1.3, KEPT)
    await tried(loop, stage, SLOWER_KERNEL, 0.8, REVERTED, KEPT, PLAIN)
    stage.programs = [PENDING]
    await judged(loop, FASTER_KERNEL + "\nOTHER = 1\n")


WHOLE = {f"{named(made)}.program" for made in (BASELINE, KEPT, PENDING, REVERTED, PLAIN)}


def test_the_programs_of_every_row_stay(stage: SimpleNamespace) -> None:
    root = stage.root

    async def scene(loop: Loop) -> None:
        assert "programs" not in loop.status().files
        await whole_session(loop, stage)
        assert root / loop.status().files["programs"] == folder_of(root)
        (folder_of(root) / "mine.program").write_bytes(b"?")
        loop.revert()
        await loop.append_result("another", quiet)
        await loop.end("enough", quiet)

    play(root, scene)
    assert names(root) == {*WHOLE, "mine.program"}
    assert said(root) == [(Mark.OK, "5 device programs are those that were timed")]


def test_the_incumbent_of_a_run_is_what_the_journal_names(stage: SimpleNamespace) -> None:
    async def scene(loop: Loop) -> None:
        await whole_session(loop, stage)

    play(stage.root, scene)
    folder = folder_of(stage.root)
    baseline, kept = (program_file(folder, named(made)) for made in (BASELINE, KEPT))
    assert stage.kept == [[], [baseline], [baseline], [kept], [kept]]  # a gain is confirmed by a second run


def test_verify_names_what_is_gone_or_altered(stage: SimpleNamespace) -> None:
    root = stage.root

    async def scene(loop: Loop) -> None:
        await whole_session(loop, stage)

    play(root, scene)
    folder = folder_of(root)
    kept, plain = program_file(folder, named(KEPT)), program_file(folder, named(PLAIN))
    whole = kept.read_bytes()

    def finding() -> str:
        ((mark, text),) = said(root)
        assert mark is Mark.FAIL
        return text

    kept.write_bytes(encoded(REVERTED))
    assert finding().startswith(f"iteration 1: {folder.parent.name}/programs/{kept.name}: it was altered: its SHA-256")
    kept.unlink()
    assert "it is gone; put it back from another copy of the session, or from an archive" in finding()
    kept.write_bytes(whole)
    plain.unlink()
    assert finding().startswith(f"iteration 2: {folder.parent.name}/programs/{plain.name}: it is gone")


def test_what_was_not_written_is_a_warning(stage: SimpleNamespace) -> None:
    async def scene(loop: Loop) -> None:
        await start(loop)
        stage.note = "not written: no room"
        await tried(loop, stage, FASTER_KERNEL, 1.3, BASELINE, KEPT)

    play(stage.root, scene)
    ((mark, text),) = said(stage.root)
    assert (mark, text.partition(": ")[0]) == (Mark.WARN, "iteration 1")
    assert text.endswith("not written: no room")


@pytest.mark.slow
def test_a_session_without_programs_has_no_line(root: Path) -> None:
    assert said(root) == []


def test_an_archive_holds_the_programs(stage: SimpleNamespace, tmp_path: Path) -> None:
    async def scene(loop: Loop) -> None:
        await whole_session(loop, stage)

    play(stage.root, scene)
    export_session(Checkout(stage.root), tmp_path / "session.tgz")
    with tarfile.open(tmp_path / "session.tgz") as archive:
        packed = {Path(name).name for name in archive.getnames() if name.endswith(".program")}
    assert packed == names(stage.root)
