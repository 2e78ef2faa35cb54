"""The rows of a session as `perf_results.md` shows them."""

from __future__ import annotations

from tilewright.session.records import Row

COLUMNS = {"iteration": ">", "optimization": "<", "latency_ms": ">", "correctness": "<", "status": ">"}
"""The columns, each with the side that its texts are aligned to."""


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
