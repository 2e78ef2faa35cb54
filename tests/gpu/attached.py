"""Sessions on repositories as users have them, on a GPU: `tilewright init`, then the tools over MCP, each call timed.

The repositories are tests/repositories/gpugym and gpuops; their tests and benchmarks are the judges, unchanged.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from tests.redteam.harness import STOPPED
from tilewright.isolation.process import kept_environment
from tilewright.isolation.supervisor import descendants
from tilewright.session.checkout import Checkout
from tilewright.session.verification import verify

REPOSITORIES = Path(__file__).parents[1] / "repositories"
REFEREE = "tilewright.harness.referee"
POLL_S = 0.01
TRIES = 3
"""Of a run that is void, as on a machine that others use too."""
OVERHEAD_S = 2.0
"""What the tools may take in an iteration beside the repository's own commands."""
LEAST_SPEEDUP = 1.3
Json = dict[str, Any]


@dataclass(frozen=True)
class Edit:
    """One experiment: text of the kernel file and what takes its place, and how it has to end.

    `attack` is put before the first function; it comes with a kernel that is wrong.
    """

    name: str
    old: str
    new: str
    ends: tuple[str, ...]
    attack: str = ""

    def apply(self, source: str, before: str) -> str:
        assert self.old in source, f"{self.name}: {self.old!r} is not there"
        changed = source.replace(self.old, self.new)
        return changed.replace(before, f"{self.attack}\n\n{before}", 1) if self.attack else changed


@dataclass(frozen=True)
class Attached:
    """A repository with its kernel file, and what is tried on it in turn."""

    kernel: str
    task: str
    edits: tuple[Edit, ...]


def attacks(names: tuple[str, ...], old: str, new: str) -> tuple[Edit, ...]:
    return tuple(Edit(name, old, new, (str(STOPPED[name][1]),), STOPPED[name][0]) for name in names)


NO_GAIN = ("inconclusive", "regression")
MEAN, PADDING = ("keepdims=True) / N", "keepdims=True) / TILE"), ("PaddingMode.NEG_INF", "PaddingMode.ZERO")
ATTACHED = {
    "gpugym": Attached(
        "src/gpugym/ops/cutile/rms_norm.py",
        "perf/rms_norm",
        (
            Edit("divide by the tile's width", *MEAN, ("failed",)),
            Edit("four blocks on a multiprocessor", "@ct.kernel\n", "@ct.kernel(occupancy=4)\n", ("gain",)),
            Edit("say what a row is", "    row = ct.bid(0)\n", "    row = ct.bid(0)  # of x\n", NO_GAIN),
            *attacks(("skip_from_within_the_kernel", "leave_with_success_at_import"), *MEAN),
        ),
    ),
    "gpuops": Attached(
        "gpuops/kernels/softmax.py",
        "perf/softmax",
        (
            Edit("pad with zeros", *PADDING, ("failed",)),
            Edit("16 rows a block", "ROWS = 1\n", "ROWS = 16\n", ("gain",)),
            Edit("2 rows a block, for more blocks", "ROWS = 16\n", "ROWS = 2\n", NO_GAIN),
            *attacks(("skip_from_within_the_kernel", "put_a_link_in_place_of_the_report"), *PADDING),
        ),
    ),
}
KERNEL_MARK = "@ct.kernel"


def by_the_log(root: Path) -> float:
    """Seconds of all benchmark commands of the current session so far, by its journal; of checks it does not say."""
    folder = Checkout(root).current_folder()
    lines = (folder / "journal.jsonl").read_text().splitlines() if folder is not None else []
    records = (json.loads(line)["data"] for line in lines)
    return sum(one["result"]["phases"].get("commands", 0.0) for one in records if one["kind"] == "measured")


class Commands:
    """A context manager: how long commands of the repository ran, looked at from outside every `POLL_S` seconds.

    The referee, which is below this process, starts each in a process of its own.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Commands:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        referee, last = 0, time.monotonic()
        while not self._stop.wait(POLL_S):
            if not referee or not Path(f"/proc/{referee}").exists():
                referee = next((pid for pid in descendants(os.getpid()) if _is_referee(pid)), 0)
            busy = bool(referee and descendants(referee))
            now = time.monotonic()
            self.seconds += (now - last) * busy
            last = now


def _is_referee(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return REFEREE in words and "tilewright.isolation.supervisor" not in words


class Unfit(Exception):
    """A tool refused, or said what lets nothing further be tried."""


@dataclass
class Player:
    """The tools of one session in the repository at `root`, each call noted with its answer and its seconds."""

    root: Path
    client: Client
    commands: Commands
    calls: list[Json]
    save: Callable[[], None]

    async def call(self, tool: str, **arguments: Any) -> Json:
        """A tool's answer; it is asked again while it runs, and where its run was void. Raises `Unfit`."""
        report: Json = {}
        for _ in range(TRIES):
            before, started = self._seconds_of(tool), time.monotonic()
            while True:
                result = await self.client.call_tool(tool, arguments)
                report = dict(result.structured_content or {})
                if report.get("state") != "running":
                    break
            seconds = time.monotonic() - started
            noted: Json = {"tool": tool, "seconds": seconds, "commands_s": self._seconds_of(tool) - before}
            if result.is_error:
                report = {"refused": str(getattr(result.content[0], "text", ""))}
            self.calls.append(noted | {"report": report})
            self.save()
            said = str(report.get("summary") or report.get("refused") or "").partition("\n")[0]
            print(f"  {tool}: {seconds:.1f} s, {noted['commands_s']:.1f} s in commands: {said[:160]}", flush=True)
            if result.is_error:
                raise Unfit(f"{tool}: {report['refused']}")
            if report.get("status") != "void":
                break
        return report

    def _seconds_of(self, tool: str) -> float:
        return by_the_log(self.root) if tool == "run_benchmark" else self.commands.seconds


def repository(parent: Path, name: str) -> Path:
    """A copy of the repository, committed."""
    root = parent / name
    shutil.copytree(REPOSITORIES / name, root, ignore=shutil.ignore_patterns("__pycache__", "perf"))
    subprocess.run(["git", "init", "-q", "--initial-branch=main"], cwd=root, check=True)
    commit(root, "as it was found")
    return root


def commit(root: Path, message: str) -> None:
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgSign=false"]
    for words in (["add", "-A"], [*identity, "commit", "-qm", message]):
        subprocess.run(["git", *words], cwd=root, check=True)


def attach(root: Path, found: Json) -> None:
    """`tilewright init`, and a commit of what it wrote. Raises `Unfit`."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", "init", "--yes"],
        cwd=root, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    said = done.stdout[-6000:] + done.stderr[-3000:]
    found["init"] = {"seconds": time.monotonic() - started, "status": done.returncode, "said": said}
    if done.returncode:
        raise Unfit(f"init: {said}")
    print(f"  init: {found['init']['seconds']:.1f} s", flush=True)
    commit(root, "the task that init wrote")


async def session(name: str, parent: Path, found: Json, save: Callable[[], None], until: float, minutes: float) -> None:
    """Play a session on the repository `name`, in a new folder below `parent`; `found` gets all that was said.

    No experiment is begun after `until` on the monotonic clock. What fails is noted, never raised.
    """
    attached = ATTACHED[name]
    found |= {"repository": name, "start": [], "iterations": [], "left_out": []}
    print(name, flush=True)
    root = repository(parent, name)
    with noted(found, save):
        if time.monotonic() >= until:
            raise Unfit("no time was left to begin")
        attach(root, found)
        found["task"] = (root / attached.task / "task.toml").read_text()
        environment = {key: value for key, value in os.environ.items() if key.startswith("TILEWRIGHT_")}
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "tilewright", "serve", "--root", str(root)],
            env=kept_environment() | environment,
        )
        with Commands() as commands:
            async with Client(server) as client:
                player = Player(root, client, commands, found["start"], save)
                rules = {"patience": 9, "iteration_minutes": minutes}
                begun = await player.call("start_session", task=attached.task, rules=rules)
                found |= {"backend": begun["backend"], "device": begun["device"], "phase": begun["phase"]}
                if begun["phase"] != "ready":
                    raise Unfit(f"the session did not begin: {begun['summary']}")
                for edit in attached.edits:
                    if time.monotonic() >= until:
                        found["left_out"].append(edit.name)
                        continue
                    await experiment(player, root / attached.kernel, edit, found)
                player.calls = []
                found["status"] = await player.call("session_status")
    with noted(found, save):
        found["verify"] = [[line.what, str(line.mark), line.detail] for line in verify(Checkout(root))]
        found["kernel"] = (root / attached.kernel).read_text()
        found["changed"] = subprocess.check_output(["git", "status", "--porcelain"], cwd=root, text=True)
        found["table"] = (root / "sandbox" / "perf_results.md").read_text()


async def experiment(player: Player, kernel: Path, edit: Edit, found: Json) -> None:
    """One iteration: edited, checked, measured where it is right, kept or reverted as the verdict says, logged."""
    iteration: Json = {"name": edit.name, "ends": list(edit.ends), "calls": []}
    found["iterations"].append(iteration)
    player.calls = iteration["calls"]
    kernel.write_text(edit.apply(kernel.read_text(), KERNEL_MARK))
    report = await player.call("run_correctness")
    iteration |= {"ended": report["status"], "kept": False}
    if report["status"] == "passed":
        report = await player.call("run_benchmark")
        verdict = report.get("verdict") or {}
        iteration |= {"ended": verdict.get("reason", report["status"]), "speedup": report.get("speedup")}
        iteration |= {"interval": report.get("interval"), "verdict": verdict, "kept": verdict.get("kind") == "keep"}
    await player.call("git_checkpoint" if iteration["kept"] else "revert")
    iteration["row"] = (await player.call("append_result", optimization=edit.name))["row"]
    iteration |= {"seconds": total(iteration, "seconds"), "commands_s": total(iteration, "commands_s")}


def total(iteration: Json, key: str) -> float:
    return sum(call[key] for call in iteration["calls"])


@contextmanager
def noted(found: Json, save: Callable[[], None]) -> Iterator[None]:
    """Put what goes wrong within on record, and go on."""
    try:
        yield
    except Exception as error:  # a task group's hides the one that matters
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]  # type: ignore[assignment]
        found.setdefault("errors", []).append("".join(traceback.format_exception(error))[-4000:])
        print(f"  {type(error).__name__}: {str(error)[:2000]}", flush=True)
    finally:
        save()


def failures(found: Json, backend: str = "cuda") -> list[str]:
    """What did not go as it has to, in words; empty for a session as the issue wants it."""
    said = [f"error: {text.strip().splitlines()[-1]}" for text in found.get("errors", [])]
    said += [f"left out: {name}" for name in found["left_out"]]
    if (found.get("backend"), found.get("phase")) != (backend, "ready"):
        said.append(f"the session is {found.get('phase')} on {found.get('backend')}")
    for one in found["iterations"]:
        if one.get("ended") not in one["ends"]:
            said.append(f"{one['name']}: ended as {one.get('ended')}, not as {' or '.join(one['ends'])}")
        if one.get("kept", False) != ("gain" in one["ends"]):
            said.append(f"{one['name']}: kept is {one.get('kept')}")
        if one.get("kept") and not ((one["speedup"] or 0) > LEAST_SPEEDUP and "confirmed" in one["verdict"]["detail"]):
            said.append(f"{one['name']}: {one['verdict']['detail']}")
        if (around := overhead(one)) > OVERHEAD_S:
            said.append(f"{one['name']}: {around:.2f} s around the commands")
        if "[harness-trusted]" not in one.get("row", ""):
            said.append(f"{one['name']}: no mark in its row {one.get('row')!r}")
    said += [f"verify: {what}: {text}" for what, mark, text in found.get("verify", []) if mark == "FAIL"]
    said += [] if found.get("verify") else ["the log was not verified"]
    said += [f"changed, and not by the session: {found['changed']}"] if found.get("changed") else []
    if found.get("kernel") and found["kernel"] != expected(found["repository"]):
        said.append("the kernel file is not the one that was kept")
    return said


def expected(name: str) -> str:
    """The kernel file as it must be in the end: with what is a gain, and nothing else."""
    source = (REPOSITORIES / name / ATTACHED[name].kernel).read_text()
    for edit in ATTACHED[name].edits:
        source = edit.apply(source, KERNEL_MARK) if "gain" in edit.ends else source
    return source


def overhead(iteration: Json) -> float:
    """Seconds of an iteration's tools beside the repository's own commands."""
    return total(iteration, "seconds") - total(iteration, "commands_s")


def shown(found: Json) -> str:
    """A session's table for people: every iteration, how it ended, and where its seconds went."""
    attaching = found.get("init", {}).get("seconds", 0.0)
    lines = [f"{found['repository']} on {found.get('device', '?')}, init {attaching:.1f} s"]
    if found["start"]:
        lines.append(f"  baseline: {sum(call['seconds'] for call in found['start']):.1f} s")
    for one in found["iterations"]:
        speed = f" {one['speedup']:.3f} x {one['interval']}" if one.get("speedup") else ""
        lines.append(
            f"  {one['name']}: {one.get('ended', 'broken off')}{speed}; {total(one, 'seconds'):.1f} s, of which "
            f"{total(one, 'commands_s'):.1f} s in commands, {overhead(one):.2f} s around them"
        )
    return "\n".join([*lines, *(f"  NOT AS IT HAS TO BE: {text}" for text in failures(found))])
