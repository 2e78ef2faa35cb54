"""Many workers at once: loaded side by side, and none left where one of them fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.conftest import SCALE_KERNEL, SCALE_TASK, SCALE_TOML
from tilewright.isolation.process import ChildProcess

SCRIPT = """
import json, math, os, sys, time
from pathlib import Path, PurePosixPath
from tilewright.isolation.fork_server import ForkServer
from tilewright.evaluation.pool import WorkerFailure, WorkerPool
from tilewright.evaluation.snapshot import SnapshotStore
from tilewright.task import load_task

folder, kernel = Path(sys.argv[1]), sys.argv[2]
fork_server = ForkServer.forked("tilewright.evaluation.worker", "cpu:sm_90")
files = {f"task/{path.name}": path.read_bytes() for path in (folder / "task").iterdir()}
store = SnapshotStore(folder, files, PurePosixPath("task"))
sources = [f"import time\\ntime.sleep(2)\\n{kernel}\\nNUMBER = {number}\\n" for number in range(5)]
snapshots = store.write(*({"task/kernel.py": text.encode()} for text in [*sources, "raise ValueError('no')"]))
task = load_task(folder / "task")
pool = WorkerPool(fork_server, "cpu:sm_90", folder, spares=1)
labels = [str(number) for number in range(6)]
said = {}
with pool.loaded(task, [*zip(labels, snapshots[:5])], math.inf):  # all imports that come but once are over
    pass
started = time.monotonic()
with pool.loaded(task, [*zip(labels, snapshots[:5])], math.inf) as workers:
    said["seconds"] = time.monotonic() - started
    said["labels"] = [worker.label for worker in workers]
    for worker in workers:
        worker.request("ping", 5.0)
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
pool.settle()
said["alive"] = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
said["left"] = len([entry for entry in folder.iterdir() if entry.name.startswith(("worker-", "given-"))])
said["waiting"] = len(pool.waiting)
pool.close()
print(json.dumps(said))
"""


def test_workers_load_side_by_side_and_none_is_left(tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    for name, text in {"task.toml": SCALE_TOML, "task.py": SCALE_TASK, "kernel.py": SCALE_KERNEL}.items():
        (tmp_path / "task" / name).write_text(text)
    (tmp_path / "own").mkdir()
    script = tmp_path / "own" / "script.py"
    script.write_text(SCRIPT)
    supervised = [sys.executable, "-I", "-m", "tilewright.isolation.supervisor", sys.executable, str(script)]
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(  # whose end is the supervisor's standard input's
            [*supervised, str(tmp_path), SCALE_KERNEL],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            env=os.environ | {"TILEWRIGHT_FOLDER": str(tmp_path / "none")},
        )
        process.wait(120)
    written = (tmp_path / "out").read_text()
    assert written, (tmp_path / "err").read_text()[-2000:]
    said = json.loads(written.splitlines()[-1])
    assert said["labels"] == ["0", "1", "2", "3", "4"]
    assert said["seconds"] < 9, "five that take two seconds each"
    assert said["failed"] == [["5", "import_error"]] * 2, said["failed"]
    assert said["ahead"] == 2  # of three that were started, for the heat after the next
    assert said["alive"] == []
    assert said["waiting"] == 1
    assert said["left"] == 2  # of the one that waits


def test_a_process_is_ended_before_it_has_a_group_of_its_own(tmp_path: Path) -> None:
    """As a worker is which the fork server has just forked."""
    child = ChildProcess(lambda _: subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE), tmp_path)
    ending = threading.Thread(target=child.kill, daemon=True)
    ending.start()
    ending.join(20)
    assert not ending.is_alive()
    assert child.exit_reason() == f"killed by {signal.SIGKILL.name}"
