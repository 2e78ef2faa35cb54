"""Edit to verdict: how long one run_correctness and one run_benchmark take, warm, for each example, and where it goes.

The edits are comments, which change nothing and compile anew; where the demo knows a real gain for the example, that
comes last, because what is kept is measured again, by fresh processes, and each version apart.

Run: python benchmarks/turnaround.py [--json FILE] [--only NAME]. Uses the GPU where there is one, else the cpu backend.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from mcp import Client
from recorded import header, write

from tilewright.bundled import examples
from tilewright.demo import server_in
from tilewright.demo_edits import EDITS, Aim

COMMENTS = 4
IGNORED = shutil.ignore_patterns("__pycache__")


def scratch(parent: Path, example: Path) -> Path:
    repository = parent / example.name
    shutil.copytree(example, repository / example.name, ignore=IGNORED)
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgSign=false"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "example"]):
        subprocess.run(["git", *command], cwd=repository, check=True)
    return repository


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    while True:
        result = await client.call_tool(tool, arguments)
        if result.is_error:
            raise SystemExit(f"{tool}: {result.content}")
        content = dict(result.structured_content or {})
        if content.get("state") != "running":
            return content


async def measure(example: Path, parent: Path) -> dict[str, Any]:
    repository = scratch(parent, example)
    runs = []
    async with Client(server_in(repository)) as client:
        started = time.monotonic()
        begun = await call(client, "start_session", task=example.name, rules={"patience": 99})
        start_s = time.monotonic() - started
        file = repository / begun["editable"][0]
        gains = [edit for edit in EDITS.get(example.name, ()) if edit.aim is Aim.GAIN]
        for number in range(COMMENTS + bool(gains)):
            text = file.read_text()
            comment = text + f"\n# edit {number}: every one compiles anew\n"
            file.write_text(comment if number < COMMENTS else gains[0].change(text))
            started = time.monotonic()
            check = await call(client, "run_correctness")
            checked = time.monotonic()
            bench = await call(client, "run_benchmark")
            ended = time.monotonic()
            assert check["status"] == bench["status"] == "passed", (check, bench)
            runs.append(
                {
                    "correctness_s": checked - started,
                    "benchmark_s": ended - checked,
                    "total_s": ended - started,
                    "phases": bench["phases"],
                    "speedup": bench["speedup"],
                    "interval": bench["interval"],
                    "verdict": bench["verdict"]["kind"],
                }
            )
            await call(client, "revert" if bench["verdict"]["kind"] != "keep" else "git_checkpoint")
            await call(client, "append_result", optimization=f"edit {number}")
    return {"example": example.name, "device": begun["device"], "start_s": start_s, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="written after each example")
    parser.add_argument("--only", default="", help="examples whose name contains this")
    arguments = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="tilewright-turnaround-") as folder:
        for example in sorted(entry for entry in examples().iterdir() if arguments.only in entry.name):
            result = asyncio.run(measure(example, Path(folder)))
            found.append(result)
            totals = [run["total_s"] for run in result["runs"]]
            print(f"{result['example']} on {result['device']}: start {result['start_s']:.1f} s")
            print(f"  edit to verdict: median {statistics.median(totals):.2f} s, worst {max(totals):.2f} s")
            for part in ("correctness_s", "benchmark_s"):
                print(f"  {part}: median {statistics.median(run[part] for run in result['runs']):.2f}")
            kept = [f"{run['total_s']:.2f} s" for run in result["runs"] if run["verdict"] == "keep"]
            print(f"  to a keep: {', '.join(kept) or 'none'}")
            print(f"  benchmark phases of the last run: {result['runs'][-1]['phases']}", flush=True)
            if arguments.json:
                write(arguments.json, header("turnaround.py --json FILE") | {"examples": found})


if __name__ == "__main__":
    main()
