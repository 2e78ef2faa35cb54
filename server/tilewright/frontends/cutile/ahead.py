"""What each process that compiles with cuTile would work out anew."""

from __future__ import annotations

import io
import tempfile
import warnings
from typing import Any

import cuda.tile as ct
from cuda.tile import _compile as compiler
from cuda.tile._cext import default_tile_context
from cuda.tile.compilation import CallingConvention, KernelSignature, export_kernel
from cutile_cache._env import get_cache_dir_from_env


def nothing() -> None:
    """A kernel that does nothing."""


def get_ready() -> None:
    """Lower a kernel, for which the front end imports what it needs, and ask the compiler for its version and for the
    newest bytecode that it takes. Each question is a process of its own. cuTile keeps the second answer for one folder
    of temporary files, and each worker has its own: it is kept for all of them here."""
    compiler._get_compiler_version_string()
    dev = compiler.dev_features_enabled()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")  # an answer that was guessed is not kept
        newest = compiler._get_max_supported_bytecode_version(folder, dev)
    asked = compiler._get_max_supported_bytecode_version

    def known(temp_dir: str, allow_dev: bool = False) -> Any:
        return newest if allow_dev == dev else asked(temp_dir, allow_dev)

    compiler._get_max_supported_bytecode_version = known
    signature = KernelSignature([], CallingConvention.cutile_python_v1())
    export_kernel(ct.kernel(nothing), [signature], io.BytesIO(), gpu_code="sm_90", output_format="tileir_bytecode")


def begin() -> None:
    """Take the temporary folder and the cache's from this worker's environment."""
    default_tile_context.config.temp_dir = tempfile.gettempdir()
    default_tile_context.config.cache_dir = get_cache_dir_from_env()
