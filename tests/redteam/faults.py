"""Faults: candidates that hang, crash or take the whole machine, and how soon that is told and the next one judged.

`python -m tests.redteam.faults [--only NAME] [--out FILE]`: each fault on the backend of this machine, between two runs
of a right kernel. It has to have its status within the task's timeout and `GRACE_S`, and the next run has to pass.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.recorded import header, write

from tests.bench import Bench, body
from tests.conftest import SCALE_KERNEL, SCALE_TOML
from tilewright.evaluation.results import Status
from tilewright.isolation import limits
from tilewright.session.runs import backend_here
from tilewright.task import Backend

TIMEOUT_S = 12
GRACE_S = 5
"""Beyond the timeout: to end processes, and to find out what they did."""
LIMITS = {"memory_mib": limits.MEMORY_LIMIT >> 20, "scratch_mib": limits.SCRATCH_LIMIT >> 20}
ROOT = Path(__file__).parents[2]
DISK_MIB = 600
DISKS = "a disk that it fills", "a full disk"
FILLED = {"crashed": "filled the disk", "raised": "No space left on device"}
"""What is said of a candidate that fills the disk, by its status."""
TOML = SCALE_TOML.replace("timeout_s = 20", f"timeout_s = {TIMEOUT_S}")
LARGE = TOML.replace("N = 1048576", "N = 33554432")
"""On a GPU: long enough to be timed well."""

KERNELS = """
@ct.kernel
def endless(flag):
    seen = ct.atomic_add(flag, 0, 0)
    while seen < 1:
        seen = ct.atomic_add(flag, 0, 0)


@ct.kernel
def far(x):
    places = ct.arange(32, dtype=ct.int64) + 1000000000000
    ct.scatter(x, places, ct.full((32,), 1.0, dtype=ct.float32), check_bounds=False)


def launch(kernel, x):
    ct.launch(torch.cuda.current_stream(), (1,), kernel, (x,))
"""
ENDLESS = "launch(endless, torch.zeros(1, dtype=torch.int32, device='cuda'))\n"


@dataclass(frozen=True)
class Fault:
    """An entry point's lines, and the status and words with which it has to end; `timed`: only once it is measured."""

    lines: str
    status: Status
    words: str
    timed: bool = False

    @property
    def source(self) -> str:
        return body(self.lines, KERNELS if "launch(" in self.lines else "")


EVERYWHERE = {
    "a fork bomb": Fault(
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        Status.CRASHED, "over the limit of",
    ),
    "memory without end": Fault(
        "held = []\nwhile True:\n    held.append(b'x' * 2**28)",
        Status.CRASHED, "MiB of memory, over the limit",
    ),
    "files without end": Fault(
        "import os\nwhile True:\n    with open(os.environ['HOME'] + '/fill', 'ab') as file:\n"
        "        file.write(bytes(2**24))",
        Status.CRASHED, "MiB of files, over the limit",
    ),
    "a hang": Fault("while True:\n    pass", Status.TIMEOUT, f"no answer within {TIMEOUT_S} s"),
    "a segmentation fault": Fault("import ctypes\nctypes.string_at(0)", Status.CRASHED, "SIGSEGV"),
    "a gigabyte of output": Fault(
        "import os\nfor _ in range(1024):\n    os.write(1, b'PASS' * 2**18)\nreturn right(x, factor) * 2",
        Status.WRONG_VALUES, "elements are wrong",
    ),
    "a frame without end": Fault(
        "import os\nfor fd in range(3, 30):\n    try:\n        os.write(fd, b'\\x00\\xff\\xff\\xff' + b'x' * 100)\n"
        "    except OSError:\n        pass\nimport time\ntime.sleep(100)",
        Status.TIMEOUT, f"no answer within {TIMEOUT_S} s",
    ),
}  # fmt: skip
ON_A_GPU = {
    "a hang on the device": Fault(ENDLESS + "return right(x, factor)", Status.TIMEOUT, f"within {TIMEOUT_S} s"),
    "a hang on the device, once it is timed": Fault(
        f"if torch.cuda.is_current_stream_capturing():\n    {ENDLESS}return right(x, factor)",
        Status.TIMEOUT, f"within {TIMEOUT_S} s", timed=True,
    ),
    "a sticky CUDA error": Fault(
        "launch(far, torch.empty_like(x))\nreturn x * factor", Status.RAISED, "illegal memory access"
    ),
    "a sticky CUDA error that is swallowed": Fault(
        "launch(far, torch.empty_like(x))\ntry:\n    torch.cuda.synchronize()\nexcept Exception:\n    pass\n"
        "return x",
        Status.RAISED, "illegal memory access",
    ),
    "a sticky CUDA error, once it is timed": Fault(
        "if torch.cuda.is_current_stream_capturing():\n    launch(far, torch.empty_like(x))\nreturn right(x, factor)",
        Status.NOT_REPLAYED, "illegal memory access", timed=True,
    ),
    "out of device memory": Fault("torch.empty(2**45, device='cuda')\nreturn x", Status.RAISED, "out of memory"),
    "device memory without end": Fault(
        "held = []\nwhile True:\n    held.append(torch.empty(2**30, device='cuda'))", Status.RAISED, "out of memory"
    ),
    "a segmentation fault, once it is timed": Fault(
        "if torch.cuda.is_current_stream_capturing():\n    import ctypes\n    ctypes.string_at(0)\n"
        "return right(x, factor)",
        Status.CRASHED, "SIGSEGV", timed=True,
    ),
}  # fmt: skip
FAULTS = EVERYWHERE | ON_A_GPU


def make_bench(root: Path, backend: Backend, **files: str) -> Bench:
    """An evaluator for the faults; TILEWRIGHT_MEMORY_MIB and TILEWRIGHT_SCRATCH_MIB have to be in its environment."""
    return Bench(root, backend, LARGE if backend is Backend.CUDA else TOML, **files)


def judge(bench: Bench, fault: Fault) -> dict[str, Any]:
    """How a fault ended, in how many seconds, and how the right kernel did after it. Every figure is measured."""
    bench.check(SCALE_KERNEL)
    started = time.monotonic()
    result = bench.measure(fault.source) if fault.timed else bench.check(fault.source)
    ended = time.monotonic()
    following = bench.check(SCALE_KERNEL)
    return {
        "status": str(result.status),
        "message": result.message.partition("\n")[0],
        "seconds": round(ended - started, 2),
        "as_told": result.status is fault.status and fault.words in result.message,
        "next": str(following.status),
        "next_message": following.message.partition("\n")[0],
        "next_s": round(time.monotonic() - ended, 2),
    }


def on_small_disk() -> dict[str, dict[str, Any]]:
    """What a candidate makes of a disk that it fills, and of one that is full before it comes: the disk is a small one
    that a process of this module has alone (`--inside`). Raises RuntimeError where none can be mounted."""
    with tempfile.TemporaryDirectory(prefix="tilewright-disk-") as disk:
        mounted = f'mount -t tmpfs -o size={DISK_MIB}m none {disk} && TMPDIR={disk} exec "$0" "$@"'
        run = ["bash", "-c", mounted, sys.executable, "-m", "tests.redteam.faults", "--inside"]
        for user in (["--user", "--map-root-user"], []):  # either may be forbidden
            done = subprocess.run(["unshare", *user, "--mount", *run], capture_output=True, text=True, cwd=ROOT)
            if "unshare:" not in done.stderr and "mount:" not in done.stderr:
                assert done.returncode == 0, done.stderr
                return dict(json.loads(done.stdout.splitlines()[-1].replace(disk, "DISK")))
    raise RuntimeError(f"no disk can be mounted here: {done.stderr.strip()[-500:]}")


def inside() -> None:
    """The part of `on_small_disk` that runs there."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="tilewright-faults-") as folder:
        bench = make_bench(Path(folder) / "repo", backend_here())
        filling = judge(bench, EVERYWHERE["files without end"])
        seen = FILLED.get(filling["status"], "?") in filling["message"]  # whichever of the two sees it first
        started = time.monotonic()
        with tempfile.TemporaryFile(buffering=0) as fill:
            with contextlib.suppress(OSError):
                while fill.write(bytes(2**20)):
                    pass
            full = bench.check(SCALE_KERNEL)
        ended = time.monotonic()
        after = bench.check(SCALE_KERNEL)
        bench.close()
    told = full.status is Status.VOID and f"the disk that holds {tempfile.gettempdir()}" in full.message
    found = {
        "status": str(full.status),
        "message": full.message.partition("\n")[0],
        "seconds": round(ended - started, 2),
        "as_told": told,
        "next": str(after.status),
        "next_s": round(time.monotonic() - ended, 2),
    }
    print(json.dumps(dict(zip(DISKS, [filling | {"as_told": seen}, found], strict=True))))


def tell(name: str, found: dict[str, Any]) -> None:
    """Print a line on a fault, and note down whether it ended as it should."""
    good = found["as_told"] and found["next"] == "passed" and found["seconds"] < TIMEOUT_S + GRACE_S
    found["good"] = good
    print(f"{'  ' if good else '!!'} {name:<40} {found['status']:<13} {found['seconds']:6.2f} s; next "
          f"{found['next']} in {found['next_s']:.2f} s  {found['message'][:90]}", flush=True)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.redteam.faults", description=__doc__)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--out", type=Path, help="write what was seen to this JSON file, or .json.gz")
    given = parser.parse_args()
    if given.inside:
        inside()
        return 0
    backend = backend_here()
    chosen = FAULTS if backend is Backend.CUDA else EVERYWHERE
    seen: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="tilewright-faults-") as folder:
        bench = make_bench(Path(folder) / "repo", backend)
        for name, fault in chosen.items():
            if given.only in name:
                seen[name] = judge(bench, fault)
                tell(name, seen[name])
        bench.close()
    if any(given.only in name for name in DISKS):
        try:
            seen |= on_small_disk()
        except RuntimeError as error:
            unseen = {"status": "not run", "as_told": False, "seconds": 0.0, "next": "", "next_s": 0.0}
            seen |= {name: unseen | {"message": str(error)} for name in DISKS}
        for name in DISKS:
            tell(name, seen[name])
    bad = [name for name, found in seen.items() if not found["good"]]
    print(f"{len(seen)} faults, {len(bad)} not as they should be; at most {TIMEOUT_S} + {GRACE_S} s each")
    if given.out:
        made = {"command": "python -m tests.redteam.faults --out FILE", "backend": backend.value}
        write(given.out, header("") | made | {"timeout_s": TIMEOUT_S, "grace_s": GRACE_S} | LIMITS | {"faults": seen})
    return 1 if bad else 0


if __name__ == "__main__":
    if "TILEWRIGHT_MEMORY_MIB" not in os.environ:  # read as the evaluator is imported, which was above: start anew
        os.environ |= {"TILEWRIGHT_MEMORY_MIB": "1536" if backend_here() is Backend.CPU else "8192"}
        os.environ |= {"TILEWRIGHT_SCRATCH_MIB": "1024"}
        os.execv(sys.executable, [sys.executable, "-m", "tests.redteam.faults", *sys.argv[1:]])
    sys.exit(main())
