"""Many workers at once: in the order asked for, and none left where one of them fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SCALE_KERNEL, SCALE_TASK, SCALE_TOML
from tilewright.isolation.process import ChildProcess

SCRIPT = """
import json, math, os, signal, sys, time
from pathlib import Path, PurePosixPath
from tilewright.isolation.fork_server import ForkServer
from tilewright.evaluation.pool import WorkerFailure, WorkerPool
from tilewright.evaluation.snapshot import SnapshotStore
from tilewright.task import load_task

folder, kernel = Path(sys.argv[1]), sys.argv[2]
fork_server = ForkServer.forked("tilewright.evaluation.worker", "cpu:sm_90")
files = {f"task/{path.name}": path.read_bytes() for path in (folder / "task").iterdir()}
store = SnapshotStore(folder, files, PurePosixPath("task"))
sources = [f"{kernel}\\nNUMBER = {number}\\n" for number in range(5)]
snapshots = store.write(*({"task/kernel.py": text.encode()} for text in [*sources, "raise ValueError('no')"]))
task = load_task(folder / "task")
pool = WorkerPool(fork_server, "cpu:sm_90", folder, spares=1)
labels = [str(number) for number in range(6)]
said = {}
with pool.loaded(task, [*zip(labels, snapshots[:5])], math.inf):  # all imports that come but once are over
    pass
with pool.loaded(task, [*zip(labels, snapshots[:5])], math.inf) as workers:
    said["labels"] = [worker.label for worker in workers]
    for worker in workers:
        worker.request("inputs", 5.0, sets=[])
    pids = [worker.pid for worker in workers]
said["failed"] = []
for order in (labels, labels[::-1]):  # the last fails while, or after, the others import
    try:
        with pool.loaded(task, [(label, snapshots[int(label)]) for label in order], math.inf) as workers:
            said["failed"].append("nothing")
    except WorkerFailure as failure:
        said["failed"].append([failure.label, failure.status])
pool.prepare(3)
with pool.loaded(task, [("0", snapshots[0])], math.inf):
    pass
said["ahead"] = len(pool.waiting)
pool.refill()
pool.prepare(4)
pool.wait_ready()
for place, count in ((2, 4), (-1, 5)):  # one that waits, neither the first nor the last; one that is not ready yet
    pool.prepare(count)
    victim = pool.waiting[place]
    os.kill(victim.pid, signal.SIGKILL)
    while not victim.ended:
        time.sleep(0.01)
    if place == 2:
        pool.prepare(4)
for _ in range(2):
    pool.wait_ready()
said["ready"] = [worker.ended for worker in pool.waiting]
pool.refill()
said["alive"] = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
said["left"] = len([entry for entry in folder.iterdir() if entry.name.startswith(("worker-", "given-"))])
said["waiting"] = len(pool.waiting)
pool.close()
print(json.dumps(said))
"""


def _said(folder: Path, text: str, argument: str) -> Any:
    """What a script says, which makes workers for the `scale` task in `folder`, and is given that and the argument."""
    (folder / "task").mkdir()
    for name, content in {"task.toml": SCALE_TOML, "task.py": SCALE_TASK, "kernel.py": SCALE_KERNEL}.items():
        (folder / "task" / name).write_text(content)
    (folder / "own").mkdir()
    script = folder / "own" / "script.py"
    script.write_text(text)
    supervised = [sys.executable, "-I", "-m", "tilewright.isolation.supervisor", sys.executable, str(script)]
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(  # whose end is the supervisor's standard input's
            [*supervised, str(folder), argument],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            env=os.environ | {"TILEWRIGHT_FOLDER": str(folder / "none")},
        )
        process.wait(120)
    written = (folder / "out").read_text()
    assert written, (folder / "err").read_text()[-2000:]
    return json.loads(written.splitlines()[-1])


@pytest.mark.slow
def test_workers_load_in_order_and_none_is_left(tmp_path: Path) -> None:
    said = _said(tmp_path, SCRIPT, SCALE_KERNEL)
    assert said["labels"] == ["0", "1", "2", "3", "4"]
    assert said["failed"] == [["5", "import_error"]] * 2, said["failed"]
    assert said["ahead"] == 2  # of three that were started, for the heat after the next
    assert said["ready"] == [False] * 4, "one that ended is replaced, and one that cannot start is forgotten"
    assert said["alive"] == []
    assert said["waiting"] == 1
    assert said["left"] == 2  # of the one that waits


CHECKS = """
import json, math, sys, time
from pathlib import Path, PurePosixPath
from tilewright.isolation.fork_server import ForkServer
fork_server = ForkServer.forked("tilewright.evaluation.worker", "cpu:sm_90")
from tilewright.evaluation.correctness import planned_runs
from tilewright.evaluation.crew import Check
from tilewright.evaluation.judging import judged
from tilewright.evaluation.pool import WorkerPool
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.snapshot import SnapshotStore
from tilewright.evaluation.taskcode import TaskCode
from tilewright.task import Backend, load_task

folder = Path(sys.argv[1])
kernels = json.loads(sys.argv[2])
files = {f"task/{path.name}": path.read_bytes() for path in (folder / "task").iterdir()}
store = SnapshotStore(folder, files, PurePosixPath("task"))
snapshots = store.write(*({"task/kernel.py": text.encode()} for text in kernels))
code = TaskCode(load_task(folder / "task"), Backend.CPU)
runs = planned_runs(code.task, Backend.CPU, Seeds("secret"), 4)
pool = WorkerPool(fork_server, "cpu:sm_90", folder, spares=1)
said = []
for snapshot in snapshots:
    for workers in (1, 3):
        start = lambda count=1: pool.loaded(code.task, [("it", snapshot)] * count, math.inf)
        found = judged(Check(code, Backend.CPU, start, lambda _: None, workers=workers), runs)
        said.append([found.status, found.message, [(case.status, case.max_abs_error) for case in found.cases]])
pool.close()
print(json.dumps(said))
"""


@pytest.mark.slow
def test_a_check_on_several_workers_finds_what_one_finds(tmp_path: Path) -> None:
    """The same runs, in the same order, on the same inputs, up to the same failure."""
    wrong = SCALE_KERNEL.replace(
        "    return out\n", "    out[-1] += x.shape[0] not in (512, 1048576)\n    return out\n"
    )
    right_alone, right, wrong_alone, wrong_found = _said(tmp_path, CHECKS, json.dumps([SCALE_KERNEL, wrong]))
    assert right_alone[0] == "passed"
    assert right == right_alone
    assert wrong_alone[0] == "wrong_values"
    assert 1 < len(wrong_alone[2]) < len(right[2])
    assert wrong_found == wrong_alone


def test_a_process_is_ended_before_it_has_a_group_of_its_own(tmp_path: Path) -> None:
    """As a worker is which the fork server has just forked."""
    child = ChildProcess(lambda _: subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE), tmp_path)
    ending = threading.Thread(target=child.kill, daemon=True)
    ending.start()
    ending.join(20)
    assert not ending.is_alive()
    assert child.exit_reason() == f"killed by {signal.SIGKILL.name}"
