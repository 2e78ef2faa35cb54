"""A tool that is run to its end, or ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tilewright.profile.counters import run_tool


def test_only_a_tool_that_still_runs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    kill = os.killpg
    monkeypatch.setattr(os, "killpg", lambda group, number: (killed.append(number), kill(group, number)))
    assert asyncio.run(run_tool([sys.executable, "-c", "print(1)"], tmp_path, 60)) == (0, "1\n")
    assert killed == []
    status, said = asyncio.run(run_tool([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path, 0.01))
    assert (status, "was stopped" in said) == (None, True)
    assert killed == [signal.SIGKILL]
