"""How a dump of plain torch is shown: there is nothing to compile, so its operations are listed."""

from __future__ import annotations

from tilewright.evaluation.results import Status
from tilewright.roofline.model import HostWork
from tilewright.session.outcomes import Dumped
from tilewright.session.reports import DumpReport

NOTHING = "plain torch: there is nothing to compile"


def table(operations: list[HostWork]) -> str:
    """A line for each operation, in the order of the calls, and one for all."""
    if not operations:
        return "(no torch operation)"
    width = max(len(work.name) for work in operations)
    lines = [f"{'operation':{width}}  {'dtype':10}  {'bytes':>14}  {'flops':>16}"]
    lines += [_line(work.name, work.dtype, work.bytes, work.flops, width) for work in operations]
    lines.append(_line("all", "", *_totals(operations), width))
    return "\n".join(lines)


def report(dumped: Dumped, resource: str, shown: str) -> DumpReport:
    """The report on a torch task's call; `shown` is as much of its table as fits."""
    return _reported(dumped, f"{NOTHING}; {_in_short(dumped.operations)}", resource, shown)


def comparison(before: Dumped, after: Dumped, resource: str, shown: str) -> DumpReport:
    """The report on how the candidate's operations differ from the incumbent's."""
    if before.operations == after.operations:
        summary = f"{NOTHING}; the same operations as the incumbent's: {_in_short(after.operations)}"
    else:
        summary = f"{NOTHING}; {_in_short(after.operations)}; the incumbent: {_in_short(before.operations)}"
    return _reported(after, summary, resource, shown)


def difference(before: Dumped, after: Dumped) -> str:
    """Both tables, incumbent first."""
    return "\n".join(["-- incumbent", table(before.operations), "-- candidate", table(after.operations)])


def _reported(dumped: Dumped, summary: str, resource: str, shown: str) -> DumpReport:
    return DumpReport(summary=summary, status=Status.PASSED, case=dumped.case, text=shown, resource=resource)


def _totals(operations: list[HostWork]) -> tuple[float, float]:
    return sum(work.bytes for work in operations), sum(work.flops for work in operations)


def _in_short(operations: list[HostWork]) -> str:
    moved, flops = _totals(operations)
    count = f"{len(operations)} torch operation{'s' if len(operations) != 1 else ''}"
    return f"{count}, {moved / 1e6:.1f} MB and {flops / 1e9:.1f} Gflop of matmuls"


def _line(name: str, dtype: str, moved: float, flops: float, width: int) -> str:
    return f"{name:{width}}  {dtype:10}  {moved:14.0f}  {flops:16.0f}"
