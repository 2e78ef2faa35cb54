"""Whether two programs are the same, and where they differ if not.

Images, nodes, edges and the memory plan are compared. Of an image counts what it does, not where its source was
written. Held contents do not count: what was computed from one draw of the inputs differs from what was computed from
another, and is wrong on the next values either way.
"""

from __future__ import annotations

import hashlib

from tilewright.programs.images import code_digest
from tilewright.programs.model import Copy, Kernel, Layout, Memset, Program

_known: dict[str, str] = {}
"""`code_digest` of images, by their SHA-256."""


def identity(program: Program) -> str:
    """Equal for programs that do the same: a SHA-256. Raises `ProgramError` for an image that cannot be read."""
    return hashlib.sha256(_by_code(program).model_dump_json().encode()).hexdigest()


def _by_code(program: Program) -> Layout:
    """The layout, with images named by `code_digest`."""
    codes = {key: _code(key, image) for key, image in program.images.items()}
    nodes = (
        node.model_copy(update={"image": codes[node.image]}) if isinstance(node, Kernel) else node
        for node in program.layout.nodes
    )
    return program.layout.model_copy(update={"nodes": tuple(nodes)})


def _code(key: str, image: bytes) -> str:
    """Of an image whose bytes have the SHA-256 `key`: those of a library take long, and come again and again."""
    if key not in _known:
        _known[key] = code_digest(image)
    return _known[key]


def differences(one: Program, other: Program, most: int = 8) -> list[str]:
    """In words, where two programs differ; empty where they are the same. At most `most` lines, then how many more."""
    found: list[str] = []
    a, b = _by_code(one), _by_code(other)
    if a.arch != b.arch:
        found.append(f"for {a.arch} / for {b.arch}")
    if len(a.nodes) != len(b.nodes):
        found.append(f"{len(a.nodes)} nodes / {len(b.nodes)} nodes")
    for number, (left, right) in enumerate(zip(a.nodes, b.nodes, strict=False)):
        found += [f"node {number}: {line}" for line in _of_nodes(left, right)]
    if a.edges != b.edges:
        found.append(f"{len(a.edges)} edges / {len(b.edges)} edges, which lead elsewhere")
    if len(a.blocks) != len(b.blocks):
        found.append(f"{len(a.blocks)} blocks of memory / {len(b.blocks)}")
    for left_block, right_block in zip(a.blocks, b.blocks, strict=False):
        if left_block != right_block:
            shown = [f"{x.role}, {x.size} bytes at {x.at:#x}" for x in (left_block, right_block)]
            found.append(f"a block of memory: {shown[0]} / {shown[1]}")
    for what in ("inputs", "outputs"):
        if getattr(a, what) != getattr(b, what):
            found.append(f"the {what} lie elsewhere, or have another shape, strides or dtype")
    return found if len(found) <= most else [*found[:most], f"and {len(found) - most} more differences"]


def _of_nodes(left: Kernel | Memset | Copy, right: Kernel | Memset | Copy) -> list[str]:
    if type(left) is not type(right):
        return [f"a {left.kind} / a {right.kind}"]
    found = []
    for name in type(left).model_fields:
        a, b = getattr(left, name), getattr(right, name)
        if a == b:
            continue
        if name == "parameters":
            found += _of_parameters(a, b)
        elif name == "image":
            symbol = left.symbol if isinstance(left, Kernel) else ""
            found.append(f"{symbol}: other machine code ({a[:12]} / {b[:12]})")
        else:
            found.append(f"{name.replace('_', ' ')} {_shown(a)} / {_shown(b)}")
    return found


def _of_parameters(a: tuple[bytes, ...], b: tuple[bytes, ...]) -> list[str]:
    if len(a) != len(b):
        return [f"{len(a)} parameters / {len(b)}"]
    return [
        f"parameter {number}: {left.hex()} / {right.hex()}"
        for number, (left, right) in enumerate(zip(a, b, strict=True))
        if left != right
    ]


def _shown(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
