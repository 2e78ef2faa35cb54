"""From a function to the kernels that it launches: by names, through the repository's own imports."""

from __future__ import annotations

import pytest

from tilewright.attach.finding import read_sources
from tilewright.attach.following import kernels_of

KERNELS = """
import cuda.tile as tile
from triton import jit as compiled


@tile.kernel(occupancy=2)
def scale_kernel(x): ...


@compiled
def other_kernel(x): ...
"""
IMPL = "from ._kernels import scale_kernel\nimport cuda.tile as ct\n\ndef scale(x): ct.launch(0, 1, scale_kernel, x)\n"
BESIDE = """
import torch
import triton

impls = {}

def register(f):
    impls[f.__name__] = f

@triton.jit
def k(x): ...

@register
def fused(x): k[(1,)](x)

def plain(x): return _twice(x).float().sum()
def _twice(x): return torch.add(x, x)
def table(x): return impls["fused"](x)
def taken(x):
    impl = impls["fused"]
    return impl(x)
def op(x): return torch.ops.mypkg.fused(x)
"""
PACKAGE = {
    "src/mypkg/__init__.py": "from ._impl import scale\nfrom .tri import gelu\n",
    "src/mypkg/_impl.py": IMPL,
    "src/mypkg/_kernels.py": KERNELS,
    "src/mypkg/tri.py": "import triton\n\ndef body(x): ...\n\nk = triton.jit(body)\n\ndef gelu(x): k[(1,)](x)\n",
    "src/mypkg/plain.py": "import torch\n\nfrom . import tri\n\ndef relu(x): return torch.relu(x)\n",
    "src/mypkg/user.py": "import mypkg\n\nclass F:\n    def run(self, x): mypkg.gelu(x)\n\ndef f(x): F().run(x)\n",
    "src/mypkg/late.py": "def f(x):\n    from mypkg import _kernels as k\n    return k.scale_kernel(x)\n",
    "src/mypkg/stars.py": "from ._impl import *\n\ntry:\n    import no\nexcept ImportError:\n    def f(x): scale(x)\n",
    "src/mypkg/table.py": "import triton\n\n@triton.jit\ndef k(x): ...\n\ndef f(x): return globals()['k'](x)\n",
    "src/mypkg/beside.py": BESIDE,
    "src/mypkg/loop.py": "from .loop import f as g\n\ndef f(x): return g(x)\n",
}


@pytest.mark.parametrize(
    ("path", "function", "expected"),
    [
        ("_impl", "scale", [("_kernels", "cutile")]),
        ("__init__", "scale", [("_kernels", "cutile")]),
        ("__init__", "gelu", [("tri", "triton")]),
        ("_kernels", "other_kernel", [("_kernels", "triton")]),
        ("user", "f", [("tri", "triton")]),
        ("late", "f", [("_kernels", "cutile")]),
        ("stars", "f", [("_kernels", "cutile")]),
        ("table", "f", [("table", "triton")]),
        *(("beside", name, [("beside", "triton")]) for name in ("fused", "table", "taken", "op")),
        ("beside", "plain", []),
        ("plain", "relu", []),
        ("loop", "f", []),
    ],
)
def test_the_kernels_that_a_function_uses_are_found(path: str, function: str, expected: list[tuple[str, str]]) -> None:
    files = {name: text.encode() for name, text in PACKAGE.items()}
    modules = {source.module: source.path for source in read_sources(files).values()}
    found = kernels_of(files, modules, f"src/mypkg/{path}.py", function)
    assert [(kernel.path, kernel.frontend) for kernel in found] == [(f"src/mypkg/{p}.py", f) for p, f in expected]


def test_kernels_are_known_by_what_their_marks_mean() -> None:
    sources = read_sources({name: text.encode() for name, text in PACKAGE.items()})
    assert sources["src/mypkg/_kernels.py"].kernels == ("scale_kernel", "other_kernel")
