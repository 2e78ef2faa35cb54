"""Each kernel of a captured graph leads to the image that its language loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.frontends.protocol import FRONTENDS

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("language", ["cutile", "triton", "torch"])
def test_kernels_of_a_graph_lead_to_their_images(language: str, tmp_path: Path) -> None:
    if language != "cutile":
        pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.images_of_a_graph", language],
        cwd=Path(__file__).parents[2],
        env=os.environ | dict(FRONTENDS[language].variables) | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
