"""The skills' evals, put to agents and graded blindly; agents work by files, so that any will do.

python benchmarks/evals.py ask FOLDER [--files]   FOLDER/questions.json: the prompts that need no file, or that do, in
                                                  random order; what is wanted goes to FOLDER/key.json, not for agents
    Two agents answer, one with the skills installed, one without: FOLDER/with.json and without.json, each a list of
    {"n", "answer"}. From the skills' descriptions alone the first says beforehand which skill it would load, or none:
    FOLDER/choices.json, a list of {"n", "skill"}.
python benchmarks/evals.py blind FOLDER           FOLDER/sheet.json: both answers side by side, which is which unsaid
    A third agent grades: FOLDER/grades.json, a list of {"n", "A", "B"}, whether each assertion holds.
python benchmarks/evals.py score FOLDER FILE      what came of it, with all answers; FILE keeps its rows of other evals
python benchmarks/evals.py show FILE              the record as a table, and what did not hold
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recorded import header, read, write

ROOT = Path(__file__).parents[1]
SIDES = ("with", "without")
NONE = "near-miss"
"""What the names of evals begin with for which their own skill must not be loaded."""


def questions(files: bool) -> list[dict[str, Any]]:
    """All evals that an answer in words settles, or with `files` those that end in a session or a file, numbered in an
    order that says nothing of their skills."""
    found = []
    for path in sorted(ROOT.glob("skills/*/evals/evals.json")):
        evals = json.loads(path.read_text())
        found += [one | {"skill": evals["skill_name"]} for one in evals["evals"] if bool(one["files"]) == files]
    random.Random(3).shuffle(found)
    return [one | {"n": number} for number, one in enumerate(found, 1)]


def order(number: int) -> tuple[str, str]:
    """Which answer is A, and which is B."""
    first, second = random.Random(f"sheet {number}").sample(SIDES, 2)
    return first, second


def by_number(path: Path, what: str) -> dict[int, Any]:
    return {one["n"]: one[what] for one in json.loads(path.read_text())}


def asked(folder: Path) -> list[dict[str, Any]]:
    """The evals as they were when `ask` was run."""
    found: list[dict[str, Any]] = json.loads((folder / "key.json").read_text())
    return found


def sheet(folder: Path) -> list[dict[str, Any]]:
    answers = {side: by_number(folder / f"{side}.json", "answer") for side in SIDES}
    rows = []
    for one in asked(folder):
        a, b = order(one["n"])
        shown = {"n": one["n"], "prompt": one["prompt"], "assertions": one["assertions"]}
        rows.append(shown | {"A": answers[a][one["n"]], "B": answers[b][one["n"]]})
    return rows


def score(folder: Path, known: list[dict[str, Any]]) -> dict[str, Any]:
    """The record: each eval with the skill that was chosen, both answers, and which assertions held; `known` are rows
    of it that stay where their evals are others."""
    chosen = by_number(folder / "choices.json", "skill")
    graded = {one["n"]: one for one in json.loads((folder / "grades.json").read_text())}
    rows, now = [], header("evals.py score FOLDER FILE")
    for one, shown in zip(asked(folder), sheet(folder), strict=True):
        row = {"skill": one["skill"], "id": one["id"], "chosen": chosen[one["n"]], "assertions": one["assertions"],
               "commit": now["commit"]}  # fmt: skip
        for place, side in zip("AB", order(one["n"]), strict=True):
            held = graded[one["n"]][place]
            assert len(held) == len(one["assertions"]), f"question {one['n']}: {len(held)} grades"
            row[side] = {"answer": shown[place], "held": held}
        rows.append(row)
    anew = {(row["skill"], row["id"]) for row in rows}
    rows = [row for row in known if (row["skill"], row["id"]) not in anew] + rows
    return now | {"commit": "that of each row", "rows": sorted(rows, key=lambda row: (row["skill"], row["id"]))}


def show(record: dict[str, Any]) -> Iterator[str]:
    rows = record["rows"]
    yield "| skill | evals | loaded as meant | assertions | with the skill | without |"
    yield "|---|---:|---:|---:|---:|---:|"
    for skill in (*dict.fromkeys(sorted(row["skill"] for row in rows)), "all"):
        own = [row for row in rows if skill in ("all", row["skill"])]
        meant = sum((row["chosen"] == row["skill"]) != row["id"].startswith(NONE) for row in own)
        held = {side: sum(sum(row[side]["held"]) for row in own) for side in SIDES}
        assertions = sum(len(row["assertions"]) for row in own)
        yield f"| {skill} | {len(own)} | {meant} | {assertions} | {held['with']} | {held['without']} |"
    for row in rows:
        if (row["chosen"] == row["skill"]) == row["id"].startswith(NONE):
            yield f"{row['skill']}/{row['id']}: loaded {row['chosen'] or 'none'}"
        for side in SIDES:
            for assertion, held in zip(row["assertions"], row[side]["held"], strict=True):
                if not held:
                    yield f"{row['skill']}/{row['id']}, {side}: not: {assertion}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["ask", "blind", "score", "show"])
    parser.add_argument("folder", type=Path, help="show: the record")
    parser.add_argument("file", type=Path, nargs="?", help="score: where the record goes")
    parser.add_argument("--files", action="store_true", help="ask: the evals that end in a session or a file")
    given = parser.parse_args()
    if given.what == "ask":
        asked_now = questions(given.files)
        prompts = [{"n": one["n"], "prompt": one["prompt"]} for one in asked_now]
        (given.folder / "questions.json").write_text(json.dumps(prompts, indent=1))
        (given.folder / "key.json").write_text(json.dumps(asked_now, indent=1))
    elif given.what == "blind":
        (given.folder / "sheet.json").write_text(json.dumps(sheet(given.folder), indent=1))
    elif given.what == "score":
        write(given.file, score(given.folder, read(given.file)["rows"] if given.file.exists() else []))
    else:
        print("\n".join(show(read(given.folder))))


if __name__ == "__main__":
    main()
