"""What a crash leaves of Python's stack, as people are shown it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tilewright.isolation.process import PACKAGE, frames, trimmed

TRACE = f"""so far so good
Fatal Python error: Segmentation fault

Thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 9 in wait

Current thread 0x00007f (most recent call first):
  File "/scratch/task/kernel.py", line 4 in launch
  File "/scratch/task/kernel.py", line 9 in scale
  File "{PACKAGE}evaluation/worker.py", line 100 in call
  File "<frozen runpy>", line 88 in _run_code

Extension modules: numpy._core._multiarray_umath, torch._C (total: 30)
"""


def test_a_crash_begins_with_the_candidates_frames() -> None:
    assert frames(TRACE) == "launch (kernel.py:4), scale (kernel.py:9)"
    shown = trimmed(TRACE)
    assert "kernel.py" in shown
    assert not any(word in shown for word in ("Extension modules", "worker.py", "runpy"))
    assert shown.startswith("so far so good\n")


def test_what_is_no_trace_stays_as_it_is() -> None:
    text = "Traceback (most recent call last):\nValueError: no\n"
    assert (frames(text), trimmed(text)) == ("", text)
    assert frames("Current thread") == ""


def test_the_interpreters_own_trace_is_read(tmp_path: Path) -> None:
    script = tmp_path / "kernel.py"
    script.write_text("import os\ndef launch():\n    os.abort()\nlaunch()\n")
    said = subprocess.run([sys.executable, "-X", "faulthandler", script], capture_output=True, text=True, check=False)
    assert frames(said.stderr) == "launch (kernel.py:3), <module> (kernel.py:4)"
