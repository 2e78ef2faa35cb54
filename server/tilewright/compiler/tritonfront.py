"""The side of Triton's compiler that needs the kernel as Python: from a launch to TTIR. Needs no GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from tilewright.compiler.compilation import Lowered
from tilewright.compiler.texts import raised

HINTS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
OPTIONS = (*HINTS, "enable_fp_fusion", "enable_reflect_ftz", "launch_cooperative_grid", "launch_pdl")
"""Options of a launch that the later stages of the compiler read too."""
DERIVED = frozenset(
    {
        "arch",
        "supported_fp8_dtypes",
        "deprecated_fp8_dot_operand_dtypes",
        "max_num_imprecise_acc_default",
        "extern_libs",
    }
)
"""Options that follow from the architecture: a launch's are another's."""


def signature_text(source: Any) -> str:
    """What a kernel was specialised for, in a line: types, constants, and arguments that 16 divides."""
    divisible = {place[0] for place, attributes in source.attrs.items() if ["tt.divisibility", 16] in attributes}
    constants = {place[0]: value for place, value in source.constants.items() if len(place) == 1}
    parts = []
    for number, (name, kind) in enumerate(source.signature.items()):
        if number in constants:
            parts.append(f"{name}={constants[number]!r}")
        else:
            parts.append(f"{name}: {kind}{' /16' if number in divisible else ''}")
    return f"{source.name}({', '.join(parts)})"


def lower(source: Any, options: dict[str, Any], arch: str, target: Any, root: Path | None = None) -> Lowered:
    """A Triton `ASTSource` as TTIR for `arch`, or with the front end's complaint as its `error`.

    Source files below `root` are named by their place in it.
    """
    from triton._C.libtriton import ir
    from triton.backends.compiler import Language
    from triton.compiler import make_backend

    given = {name: value for name, value in options.items() if name not in DERIVED}
    kept = {name: given[name] for name in OPTIONS if given.get(name) is not None}
    hints = {name: int(kept[name]) for name in HINTS if name in kept}
    known = Lowered(str(source.name), arch, 3, signature_text(source), hints, frontend="triton", options=kept)
    try:
        backend = make_backend(target)
        parsed = backend.parse_options(dict(given))
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        fns, modules = backend.get_codegen_implementation(parsed), backend.get_module_map()
        module = source.make_ir(target, parsed, fns, modules, context)
        stages: dict[str, Any] = {}
        backend.add_stages(stages, parsed, Language.TRITON)
        text = str(stages["ttir"](module, {}))
    except Exception as error:  # the front end's own, and whatever the kernel's Python raises at compile time
        said = raised(error)
        return dataclasses.replace(known, error=said.replace(f"{root}/", "") if root else said)
    return dataclasses.replace(known, bytecode=(text.replace(f"{root}/", "") if root else text).encode())
