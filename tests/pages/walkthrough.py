"""What a real session did, step by step, for people: WALKTHROUGH.md of every example, from its journal.

python -m tests.pages.walkthrough    write all anew; each edit is checked against the candidate that the journal names
"""

from __future__ import annotations

import difflib
import gzip
import json
import textwrap
import tomllib
from pathlib import Path
from typing import Any

from tilewright.demo import edits_of
from tilewright.evaluation.snapshot import content_id

ROOT = Path(__file__).parents[2]
JOURNALS = {
    "01_rmsnorm_occupancy_only": "demo-rmsnorm",
    "02_matmul_full_search": "demo-matmul",
    "03_rope_inplace_splitbuffer": "demo-rope",
    "04_layernorm_torch": "demo-layernorm",
    "05_softmax_triton": "demo-softmax",
}
IDEAS = {
    "name the row's scale": "A new name for a variable changes nothing that is computed. Does the referee see a gain "
    "where none is?",
    "mean over the tile, not the row": "A tempting shortcut: divide by the tile's width, a constant, instead of the "
    "row's. On the visible case, whose rows fill the tile, it is even right.",
    "occupancy 4": "`dump_ir` says 1 CTA per SM, limited by registers: too few bytes in flight. The hint makes the "
    "compiler leave room for four.",
    "two passes in steps of 256": "Every row is read twice, in thirty-two short steps each time.",
    "tile of three quarters": "6144 columns fit in fewer registers than 8192, if only a tile could be that wide.",
    "8 worker warps at occupancy 4": "Twice the warps share a row, but also the registers that four CTAs leave.",
    "tile 128x128x64": "A tile of 64x64 reads each operand 128 times over. Twice the extent, half the traffic.",
    "leave out the last K step": "The kind of bug that makes a kernel faster.",
    "tile 128x256x64, 4 worker warps": "Larger still, without asking whether the accumulator fits: `dump_ir` would "
    "have said that it spills.",
    "name the accumulator": "A new name again. By its latency alone it looks slower than row 1, the same kernel.",
    "tiles in bands of 8 rows": "Neighbouring blocks share rows and columns of the operands, so that L2 holds both.",
    "tile 128x256x128, 8 worker warps": "The large tile, with the warps that it needs to stay in registers.",
    "turn the other way": "A sign that is easily mistaken, and nothing that a latency would show.",
    "name the second half": "A new name again, for the referee to see through.",
    "03 occupancy 4": "`dump_ir` says 3 CTAs per SM, limited by registers (158 a thread). The hint makes the compiler "
    "leave room for a fourth, and spill a little (164 bytes a thread).",
    "tile of 128 positions": "Fewer and larger blocks. Twice the tile under one hint spills: 1,364 bytes a thread.",
    "tile of 48 positions": "Tiles are powers of two.",
    "tile of 16 positions": "More and smaller blocks: more of them are under way on an SM at a time.",
    "four heads a block share their angles": "All heads turn by the same angles: a block that turns four heads loads "
    "them once.",
    "name the centre": "In torch code, too, a name is nothing.",
    "double precision, to be safe": "Sums of thousands of terms look as if they wanted it. The check says whether "
    "they do; the clock says what it costs.",
    "mean of the squares less the mean squared": "One pass instead of two, by a formula of every textbook, in the "
    "input's own precision. Its two terms are nearly equal where the mean is far from zero.",
    "mean and variance in one operation": "Fewer operations, most of which read and write the matrix.",
    "torch's own layer_norm": "One operation. The task allows what torch has (`library_calls`).",
    "no maximum taken off": "A pass over the row saved, and right as long as no element is large: exp overflows in "
    "float32 from 88.8 on.",
    "name the row's start": "A name in Triton, for the referee to see through.",
    "8 warps": "Triton's default of 4 warps leaves each thread 128 of the row's 16,384 elements. Twice the threads "
    "have more loads under way.",
    "05 tile of three quarters": "The range of a Triton program is a power of two, too.",
    "one reciprocal a row": "One division for a row instead of one for each of its elements.",
    "16 warps": "Twice the threads again.",
    "torch.compile": "The compiler writes a kernel for it. It did so anew in each process that timed it, so that this "
    "verdict took most of a minute.",
}


ENDING = """

if __name__ == "__main__":
    from tilewright.selfcheck import check

    raise SystemExit(check(__file__, {}))
"""
"""How the examples' files ended when the journals were recorded."""
SINCE = {"noise": "inconclusive"}
"""What reasons of the recorded journals are called since."""


def walkthrough(example: str) -> str:
    """The page of one example."""
    with gzip.open(ROOT / "benchmarks" / "evidence" / f"{JOURNALS[example]}.journal.jsonl.gz", "rt") as file:
        records = [json.loads(line)["data"] for line in file]
    started, place = records[0], records[0]["editable"][0]
    where = started["environment"]
    text = (ROOT / "assets" / "examples" / example / "fixed_launch.py").read_text()
    edits = {edit.name: edit for edit in edits_of(example)}
    rules, evidence = started["rules"], f"benchmarks/evidence/{JOURNALS[example]}.journal.jsonl.gz"
    what = f"demo --only {example[:2]}" if edits else f"start-session {example} --rules patience={rules['patience']}"
    scripted = (
        "The edits are scripted, good ones and bad ones; checks, measurements and verdicts are real. The demo goes on "
        f"where a session by itself would stop (`patience={rules['patience']}`, `stop_on_minor_gain=False`). "
    )
    task = (ROOT / "assets" / "examples" / example / "task.toml").read_text()
    own = tomllib.loads(task)["frontend"] == "cutile"
    built = f"cuda-tile {where['cuda_tile']}, compiler {where['compiler']}" if own else f"torch {where['torch']}"
    first = next(record["first"] for record in records if record["kind"] == "measured")
    if "level" not in first:
        scripted += "When it was recorded, each version was timed in its own process; now both are replayed. "
    parts = [
        f"# A session on {started['task_name']}, step by step\n",
        f"What `tilewright {what}` did on one {where['device']} ({where['arch']}, driver {where['driver']}, {built}), "
        f"as its journal has it: `{evidence}`. {scripted if edits else ''}"
        "This page is made by `python -m tests.pages.walkthrough`.\n",
        _table(records),
    ]
    steps = _steps(records)
    ending = ENDING.format(tomllib.loads(task)["entry"].partition(":")[2])
    _same(text + ending, place, steps[0])
    parts += ["## 0: baseline\n", _checked(steps[0]), _measured(steps[0])]
    if (advice := steps[0][-1]["advice"])["action"] == "stop":
        parts.append(f"**stop**: {advice['reason']}.\n")
    for number, step in enumerate(steps[1:], 1):
        edit = edits[step[-1]["optimization"]]
        after = edit.change(text)
        _same(after + ending, place, step)
        idea = _filled(IDEAS.get(f"{example[:2]} {edit.name}") or IDEAS[edit.name])
        parts.append(f"## {number}: {edit.name}\n\n{idea}\n```diff\n{_difference(text, after)}\n```\n")
        parts += [said for said in (_checked(step), _measured(step)) if said]
        verdict, advice = step[-1]["verdict"], step[-1]["advice"]
        parts.append(
            f"**{verdict['kind']}** ({SINCE.get(verdict['reason'], verdict['reason'])}). Then: {advice['reason']}.\n"
        )
        if verdict["kind"] == "keep":
            text = after
    return "\n".join(part if part.startswith(("|", "#")) else _filled(part) for part in parts)


def _filled(text: str) -> str:
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False) + "\n"


def _steps(records: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The records of each iteration, its row last."""
    steps: list[list[dict[str, Any]]] = [[]]
    for record in records[1:]:
        steps[-1].append(record)
        if record["kind"] == "row":
            steps.append([])
    return steps[:-1]


def _same(text: str, place: str, step: list[dict[str, Any]]) -> None:
    (candidate,) = {record["candidate"] for record in step if record["kind"] == "checked"}
    assert content_id({place: text.encode()}) == candidate, f"the journal's candidate {candidate} is another"


def _table(records: list[dict[str, Any]]) -> str:
    lines = ["| iteration | optimization | latency_ms | status |", "|---:|:---|---:|---:|"]
    for row in (record for record in records if record["kind"] == "row"):
        latency = "-" if row["latency_ms"] is None else f"{row['latency_ms']:.6f}"
        lines.append(f"| {row['iteration']} | {row['optimization']} | {latency} | {row['verdict']['kind']} |")
    return "\n".join(lines) + "\n"


def _difference(before: str, after: str) -> str:
    lines = [*difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)][2:]
    return "\n".join(lines)


def _checked(step: list[dict[str, Any]]) -> str:
    """What the correctness check found."""
    (result,) = [record["result"] for record in step if record["kind"] == "checked"]
    if result["status"] != "passed":
        return f"`run_correctness`: {result['status']}. {result['message'].splitlines()[0]}."
    hidden = sum(case["hidden"] for case in result["cases"])
    worst = max(case["rel_l2_error"] for case in result["cases"])
    cases = f"{len(result['cases'])} cases, {hidden} of them hidden"
    return f"`run_correctness`: passed on {cases}; largest error {worst:.2g}."


def _measured(step: list[dict[str, Any]]) -> str:
    """What each benchmark run found; a would-be keep has two."""
    said = []
    runs = (record[name] for record in step if record["kind"] == "measured" for name in ("first", "again"))
    for result in filter(None, runs):
        if not result["cases"]:
            said.append("the same program as the incumbent" if result.get("same") else result["message"])
            continue
        (case,) = result["cases"]
        replayed = case.get("level") == "replayed"
        count = f"{len(case['samples'])} rounds of {case['pairs']} pairs" if replayed else f"{case['pairs']} pairs"
        clocks = result["telemetry"]["sm_clock_mhz"]
        text = f"{case['latency_ms']:.3f} ms, {case['roofline_percent']:.1f}% of the {case['bound']} bound"
        if result["speedup"] is not None:
            low, high = (100 * (result[name] - 1) for name in ("speedup_low", "speedup_high"))
            text += f"; against the incumbent's {case['incumbent_ms']:.3f} ms in the same seconds "
            text += f"{100 * (result['speedup'] - 1):+.2f}% ({low:+.2f}% to {high:+.2f}%, {count})"
        said.append(f"{text}; SM clock {clocks[0]} to {clocks[1]} MHz")
    return "`run_benchmark`: " + ". Again, on new inputs: ".join(said) + "." if said else ""


if __name__ == "__main__":
    for example in JOURNALS:
        (ROOT / "assets" / "examples" / example / "WALKTHROUGH.md").write_text(walkthrough(example))
