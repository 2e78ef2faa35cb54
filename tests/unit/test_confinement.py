"""What confines a worker on kernels of any age, and that the attempts to break out are real ones."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.breakout import Proof, laid_out
from tests.pages.page import ROOT

SIGNALS = "signals to other processes"
FILES = "access to files and memory of others"
REST = "other sockets, IPC and the kernel's own interfaces"
AS_IF = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from tests import breakout
from tilewright.isolation import confinement
{as_if}
breakout.main(Path(sys.argv[1]), int(sys.argv[2]))
"""


def proof(as_if: str) -> Proof:
    """What succeeds in a process of its own in which some of the confinement has been replaced."""
    with laid_out() as (outside, port):
        done = subprocess.run(
            [sys.executable, "-I", "-c", AS_IF.format(as_if=as_if), str(outside), str(port), str(ROOT)],
            cwd=outside / "scratch",
            capture_output=True,
            text=True,
            check=True,
        )
    return Proof.model_validate(json.loads(done.stdout))


@pytest.mark.parametrize("abi", range(1, 7))
def test_what_an_older_landlock_does_not_see_seccomp_refuses(abi: int) -> None:
    found = proof(f"confinement._landlock_abi = lambda libc: {abi}")
    if found.isolation.landlock != abi:
        pytest.skip(f"this kernel has no Landlock {abi}")
    assert found.succeeded == ([] if abi >= 6 else ["signal another process"])
    assert found.isolation.missing == ("" if abi >= 6 else "not prevented: signals to other processes")


def test_without_seccomp_landlock_alone_does_not_hold() -> None:
    found = proof("def fail(libc): raise OSError(0, 'none')\nconfinement._apply_seccomp = fail")
    assert found.isolation.missing == "seccomp: none"
    assert {"attach shared memory", "connect to a UNIX socket"} <= {*found.succeeded}
    assert "write a file outside its folder" not in found.succeeded


def test_every_attempt_is_refused() -> None:
    found = proof("")
    assert found.succeeded == []
    assert sum(map(len, found.tried.values())) == 12


def test_the_attempts_succeed_where_nothing_is_confined() -> None:
    found = proof("breakout.confine = lambda writable, readable: confinement.Isolation()")
    for kind, names in found.tried.items():
        assert kind in ("the kernel", "privileges") or {*names} <= {*found.succeeded}, found.succeeded
