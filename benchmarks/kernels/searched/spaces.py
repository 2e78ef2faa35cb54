"""Kernels with a case and a space each, whose configs an H200 timed (`evidence/searches.json.gz`)."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.autotune.space import declared
from tilewright.bundled import examples
from tilewright.knobs import Knobs
from tilewright.task import load_task

OWN = Path(__file__).parent
HALF_MATMUL = {"TILE_M": [64, 128], "TILE_N": [128, 256], "TILE_K": [64, 128], "num_worker_warps": [4, 8]}
ATTENTION = {"TILE_M": [64, 128], "TILE_N": [64, 128], "num_worker_warps": [4, 8], "occupancy": [1, 2]}
WIDE_ROWS = {"ROWS": [1, 2, 4], "TILE": [256, 512, 1024, 2048, 4096, 8192], "num_worker_warps": [4, 8],
             "occupancy": [1, 2, 4, 8, 16, 32]}  # fmt: skip
TILES = [64, 128, 256]
WIDE_MATMUL = {"TILE_M": TILES, "TILE_N": TILES, "TILE_K": [32, 64, 128], "GROUP": [4, 16], "num_worker_warps": [4, 8],
               "occupancy": [1, 2]}  # fmt: skip
WIDE_ATTENTION = {"TILE_M": [32, *TILES], "TILE_N": [32, *TILES], "num_worker_warps": [4, 8]}
Config = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A kernel, one case of it, and the space that is searched."""

    name: str
    folder: str
    case: dict[str, int]
    space: dict[str, list[Any]]


PARTS = (
    Part("matmul 8192", "matmul", {"M": 8192, "N": 8192, "K": 8192}, HALF_MATMUL),
    Part("rmsnorm", "rmsnorm", {"M": 16384, "N": 8192},
         {"occupancy": [1, 2, 3, 4, 5, 6, 8, 16], "num_worker_warps": [4, 8]}),
    Part("attention D128", "attention", {"B": 4, "H": 32, "S": 4096, "D": 128}, ATTENTION),
    Part("softmax", "softmax", {"M": 16384, "N": 8192},
         {"ROWS": [1, 2], "TILE": [512, 1024, 4096, 8192], "num_worker_warps": [4, 8]}),
    Part("matmul odd", "matmul", {"M": 4000, "N": 4104, "K": 4096}, HALF_MATMUL),
    Part("attention D64", "attention", {"B": 4, "H": 32, "S": 4096, "D": 64}, ATTENTION),
    Part("grouped", "grouped", {"T": 16384, "G": 16, "N": 4096, "K": 4096}, HALF_MATMUL),
    Part("matmul flat", "matmul", {"M": 1160, "N": 12296, "K": 3080}, HALF_MATMUL),
    Part("matmul unaligned", "matmul", {"M": 4097, "N": 3995, "K": 4001}, HALF_MATMUL),
    Part("softmax wide", "softmax", {"M": 16384, "N": 8192}, WIDE_ROWS),
    Part("matmul wide", "matmul", {"M": 8192, "N": 8192, "K": 8192}, WIDE_MATMUL),
    Part("rmsnorm hints", "rmsnorm", {"M": 16384, "N": 8192},
         {"occupancy": [*range(1, 33)], "num_worker_warps": [4, 8], "opt_level": [1, 2, 3]}),
    Part("rmsnorm wide", "tiled_rmsnorm", {"M": 16384, "N": 8192}, WIDE_ROWS),
    Part("matmul odd wide", "matmul", {"M": 4000, "N": 4104, "K": 4096}, WIDE_MATMUL),
    Part("matmul flat wide", "matmul", {"M": 1160, "N": 12296, "K": 3080}, WIDE_MATMUL | {"TILE_K": [64, 128]}),
    Part("matmul unaligned wide", "matmul", {"M": 4097, "N": 3995, "K": 4001},
         HALF_MATMUL | {"occupancy": [1, 2, 3]}),
    Part("attention D64 wide", "attention", {"B": 4, "H": 32, "S": 4096, "D": 64},
         WIDE_ATTENTION | {"occupancy": [1, 2, 3, 4]}),
    Part("attention D128 wide", "attention", {"B": 4, "H": 32, "S": 4096, "D": 128},
         WIDE_ATTENTION | {"occupancy": [1, 2, 3]}),
    Part("grouped some", "grouped", {"T": 16384, "G": 16, "N": 4096, "K": 4096},
         HALF_MATMUL | {"TILE_N": TILES, "occupancy": [1, 2, 3]}),
    Part("grouped wide", "grouped", {"T": 16384, "G": 16, "N": 4096, "K": 4096},
         HALF_MATMUL | {"TILE_M": TILES, "TILE_N": TILES, "TILE_K": [32, 64, 128], "occupancy": [1, 2, 3]}),
)  # fmt: skip
BY_NAME = {part.name: part for part in PARTS}


def make_repository(parent: Path, part: Part) -> Path:
    """A committed repository whose folder `task` is the part's task, on the part's case."""
    repository = parent / part.name.replace(" ", "-")
    source = OWN / part.folder
    if not source.is_dir():
        source = next(examples().glob(f"*{part.folder}*"))
    task = repository / "task"
    shutil.copytree(source, task, ignore=shutil.ignore_patterns("__pycache__", "WALKTHROUGH.md"))
    text = (task / "task.toml").read_text()
    for key, value in part.case.items():  # the first case is the one for all backends
        text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, count=1, flags=re.MULTILINE)
    (task / "task.toml").write_text(text)
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgSign=false"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "task"]):
        subprocess.run(["git", *command], cwd=repository, check=True)
    return repository


def configs_of(part: Part, repository: Path) -> list[Config]:
    """The space as Tilewright's search makes it; the first config is the original."""
    task = load_task(repository / "task")
    name = f"{task.module}.py"
    knobs = Knobs({name: (repository / "task" / name).read_bytes()}, name, task.function)
    return declared(knobs, part.space).configs
