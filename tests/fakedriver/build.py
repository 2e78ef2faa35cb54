"""Makes the stand-in for the CUDA driver: `libcuda.so.1`, found by its folder on LD_LIBRARY_PATH."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

from tilewright.replay.build import FOLDER

SOURCE = Path(__file__).with_name("driver.c")


def built(folder: Path, **numbers: int) -> Path:
    """The folder in which the library lies, new in `folder`; `numbers` are constants of driver.c. Raises `OSError`, and
    `subprocess.CalledProcessError` where it cannot be compiled."""
    spec = find_spec("nvidia")
    places = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    headers = next((found.parent for place in places for found in place.glob("*/include/cuda.h")), None)
    if headers is None:
        raise FileNotFoundError("cuda.h, which comes with nvidia-cuda-nvcc, is not there")
    folder.mkdir()
    defined = [f"-D{name}={value}" for name, value in numbers.items()]
    warnings = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
    command = ["cc", "-O2", *warnings, "-shared", "-fPIC", f"-I{headers}", f"-I{FOLDER}", *defined]
    subprocess.run([*command, "-o", folder / "libcuda.so.1", SOURCE], check=True)
    return folder
