"""Compiles one kernel from TTIR and ends: `python -I -m tilewright.compiler.tritoncompile FOLDER ARCH`.

A process of its own, since Triton's compiler cannot be stopped within one, and may end it. It reads `kernel.ttir` and
`options.json` of FOLDER, and writes `kernel.ttgir`, `kernel.ptx`, `kernel.cubin` and `made.json` there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(arguments: list[str]) -> None:
    import triton
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler import make_backend

    folder, arch = Path(arguments[0]), arguments[1]
    target = GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)
    backend = make_backend(target)
    options = backend.parse_options(json.loads((folder / "options.json").read_text()))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module: Any = ir.parse_mlir_module(str(folder / "kernel.ttir"), context)
    module.context = context
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, Language.TRITON)
    made: dict[str, Any] = {"target": target, **options.__dict__, "triton_version": triton.__version__}
    for name, stage in list(stages.items())[1:]:  # the first made the TTIR
        module = stage(module, made)
        path = folder / f"kernel.{name}"
        if isinstance(module, bytes):
            path.write_bytes(module)
        else:
            path.write_text(str(module))
    (folder / "made.json").write_text(json.dumps({"shared": int(made["shared"])}))


if __name__ == "__main__":
    main(sys.argv[1:])
