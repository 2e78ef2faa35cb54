"""How an iteration becomes a row of the table, and how `perf_results.md` shows the rows."""

from __future__ import annotations

from tilewright.errors import UsageError
from tilewright.evaluation.results import CAPTURED_ANEW, BenchmarkResult, CaseTiming, Level
from tilewright.policy import Reason, Verdict, VerdictKind, advise, verdict_of_check
from tilewright.session.records import Row
from tilewright.session.reports import NAME_LIMIT
from tilewright.session.state import State
from tilewright.text import printable

HARNESS_TRUSTED = "harness-trusted"
UNCONFIRMED = "launches not confirmed"
UNCOMPARED = "durations not compared"
UNJUDGED = "not on all values"
UNSTEADY = "clock not steady"
VISIBLE_ONLY = "visible sizes only"
BY_BASELINE = "compared with the baseline"
UNSAID_LUCK = 0.0008
"""A row says how probable luck is if that is more than this: 36 sizes and 25 wrong results bound it by 0.00079."""

COLUMNS = {"iteration": ">", "optimization": "<", "latency_ms": ">", "correctness": "<", "status": ">"}
"""The columns, each with the side that its texts are aligned to."""


def named(optimization: str) -> str:
    """The optimization's name as a row has it. Raises `UsageError` for what a row cannot have."""
    name = " ".join(optimization.split())
    if not name or len(name) > NAME_LIMIT or printable(name) != name:
        raise UsageError(
            "name the optimization in a few words, such as `TMA instead of gather`: at most "
            f"{NAME_LIMIT} characters, all of them visible"
        )
    return name


def close_iteration(state: State, name: str, root_cause: str | None) -> Row:
    """The row of the iteration under way, in the evaluator's figures, with the advice that follows from it."""
    assert state.checked is not None
    result = state.measured.result if state.measured else None
    sizes = state.measured.sizes if state.measured else None
    refused = sizes is not None and verdict_of_check(sizes) is not None
    wrong = refused or (result is not None and result.status.is_incorrect)
    verdict = state.verdict
    if not state.rows:
        verdict = Verdict(kind=VerdictKind.KEEP, reason=Reason.BASELINE)
    elif not state.attempt.is_kept and (verdict is None or verdict.kind is VerdictKind.KEEP):
        detail = verdict.detail if verdict else "not measured"
        verdict = Verdict(kind=VerdictKind.REVERT, reason=Reason.WITHDRAWN, detail=detail)
    assert verdict is not None
    started = state.started
    return Row(
        iteration=state.iteration,
        candidate=state.checked.candidate,
        optimization=name,
        latency_ms=result.latency_ms if result and not wrong else None,
        modelled=started.modelled,
        passed=state.checked.result.passed and not wrong,
        verdict=verdict,
        advice=advise(
            verdict,
            result,
            [row.verdict for row in state.rows[state.resumed_at :]],
            state.spent + bool(state.rows),
            started.rules,
            root_cause,
            started.environment.ceilings.measured,
        ),
        root_cause=root_cause,
        trust=_trust(state),
    )


def gain_of(row: Row, state: State) -> str:
    """What a kept row gained, as its commit's subject says it: +258%, +1.2%."""
    speedup = state.measured.result.speedup if state.measured is not None else None
    percent = 100 * ((speedup or 1.0) - 1)
    return f"{'~' if row.modelled else ''}{percent:+.{0 if abs(percent) >= 10 else 1}f}%"


def _trust(state: State) -> str:
    """What a reader should know before the row of the iteration under way is trusted, in a few words."""
    started, said = state.started, []
    if started.harness:
        said.append(HARNESS_TRUSTED)
    if started.eased:
        said.append(f"eased: {', '.join(started.eased)}")
    result = state.measured.result if state.measured is not None else None
    if result is not None:
        said += remarks(result)
    if started.reference == "baseline":
        said.append(BY_BASELINE)
    if not started.sizes:
        said.append(VISIBLE_ONLY)
    elif state.measured is not None and (sizes := state.measured.sizes) is not None and sizes.passed:
        checked, wanted = state.measured.sizes_right, sizes.wanted
        bound = f", bound {luck(checked, started.rules.wrong_results):.1%}"
        if checked < wanted:
            said.append(f"{checked} of {wanted} hidden sizes{bound}")
        elif wanted < started.rules.hidden_cases_to_keep:
            said.append(f"all {wanted} hidden sizes")
        elif luck(checked, started.rules.wrong_results) > UNSAID_LUCK:
            said.append(f"{checked} hidden sizes{bound}")
    if state.checked is not None:
        said += [note.partition(":")[0] for note in state.checked.result.notes]
    if started.environment.unprotected:
        said.append(started.environment.unprotected)
    return "; ".join(said)


def remarks(result: BenchmarkResult) -> list[str]:
    """What a reader of a benchmark's figures should know, in a few words each."""
    said = {
        result.level or "": result.level is Level.IN_PROCESS,
        UNCONFIRMED: bool(result.unconfirmed),
        UNCOMPARED: bool(result.uncompared),
        UNJUDGED: bool(result.unjudged),
        CAPTURED_ANEW: any(CAPTURED_ANEW in case.note for case in result.cases),
        UNSTEADY: not all(case.steady for case in result.cases),
    }
    return [
        *(words for words, holds in said.items() if holds),
        *result.gpu,
        *filter(None, [result.host, result.sustained]),
    ]


def notes_of(case: CaseTiming) -> list[str]:
    """What the figure of a case does not say."""
    ordinary = case.ordinary if case.ordinary is not None and case.ordinary.host_bound else None
    said = {
        f"weight {case.weight:g}": case.weight != 1,
        "the same program as the incumbent": case.same,
        "by the wall clock; the events show more": case.bounded,
        f"clock not steady ({case.mhz} MHz)": not case.steady,
        "the incumbent's bytes": case.same_bytes and not case.same,
        f"{case.error_used or 0:.0%} of the error allowed": bool(case.error_used),
        f"host-bound: {ordinary.host_us if ordinary else 0:.0f} us on the host": ordinary is not None,
        case.note: bool(case.note),
    }
    return [words for words, holds in said.items() if holds]


def luck(sizes: int, tries: int) -> float:
    """The probability, at most, that of `tries` kernels which are wrong on a quarter of what is drawn one is right on
    all of `sizes` draws."""
    return min(tries * 0.75**sizes, 1.0)


def shown_latency(value: float | None, modelled: bool) -> str:
    """A latency in ms as tables show it: six decimals, `~` for a model's, `-` where nothing was measured."""
    return "-" if value is None else f"{'~' if modelled else ''}{value:.6f}"


def _cells(row: Row) -> tuple[str, ...]:
    """A row's texts. What a reader should know before the row is trusted stands in brackets after the optimization."""
    return (
        str(row.iteration),
        row.optimization.replace("|", "\\|") + (f" [{row.trust}]" if row.trust else ""),
        shown_latency(row.latency_ms, row.modelled),
        "PASS" if row.passed else "FAIL",
        row.verdict.kind,
    )


def render_row(row: Row) -> str:
    """One row by itself."""
    return "| " + " | ".join(_cells(row)) + " |"


def render_table(rows: list[Row]) -> str:
    """The Markdown table of `perf_results.md`: five columns, one line for each iteration, nothing else."""
    cells = [tuple(COLUMNS), *map(_cells, rows)]
    columns = [(max(map(len, column)), COLUMNS[column[0]]) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(f"{cell:{side}{width}}" for cell, (width, side) in zip(row, columns, strict=True)) + " |"
        for row in cells
    ]
    rule = "|".join("-" * (width + 1) + ":" if side == ">" else ":" + "-" * (width + 1) for width, side in columns)
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]]) + "\n"
