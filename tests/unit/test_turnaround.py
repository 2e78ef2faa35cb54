"""Edits of the turnaround benchmark: each applies to its example, and is Python."""

from __future__ import annotations

from typing import Any

from benchmarks.clock import turnaround

from tilewright.bundled import examples


def test_edits_apply_to_their_examples() -> None:
    assert sum(map(len, turnaround.CHANGES.values())) == 20
    assert {*turnaround.CHANGES} == {*turnaround.SAME} == {path.parent.name for path in examples().glob("*/task.toml")}
    for name in turnaround.EXAMPLES:
        source = (examples() / name / "fixed_launch.py").read_text()
        base = turnaround.BASES.get(name, str)(source)
        edited = [change(source) for _, change in turnaround.CHANGES[name]]
        same = [change(base) for change in turnaround.SAME[name]]
        assert not {source, base} & {*edited, *same}
        for text in (base, *edited, *same):
            compile(text, name, "exec")


def test_a_summary_splits_what_was_kept_and_what_was_timed() -> None:
    def edit(kind: str, reason: str, seconds: float) -> dict[str, Any]:
        return {"verdict": {"kind": kind, "reason": reason}, "total_s": seconds, "seconds": {"check": seconds}}

    edits = [
        edit("keep", "gain", 6.0),
        edit("revert", "inconclusive", 2.0),
        edit("revert", "regression", 4.0),
        edit("revert", "same_program", 1.0),
        edit("crash", "crashed", 9.0),
        {"edit": "x", "unchanged": True},
    ]
    found = turnaround.summary([{"edits": edits}])
    assert {name: one["edits"] for name, one in found.items()} == {
        "kept": 1, "timed": 2, "same_program": 1, "other": 1
    }  # fmt: skip
    assert (found["timed"]["median_s"], found["timed"]["median_parts"]) == (3.0, {"check": 3.0})
    bad = turnaround.unexpected([{"example": "e", "edits": [one | {"edit": "x"} for one in edits]}])
    assert len(bad) == 4
