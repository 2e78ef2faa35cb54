"""Triton's interpreter computes on bfloat16 and float8 as a GPU does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def test_narrow_floats_are_computed_as_torch_computes_them() -> None:
    pytest.importorskip("triton")
    command = [sys.executable, "-W", "ignore", "-m", "tests.unit.tritonfloats_kernels"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "all agree\n", done.stderr
