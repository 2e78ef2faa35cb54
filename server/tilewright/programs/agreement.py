"""Whether two captures of one call are one program.

Parameters of C++ kernels have bytes that nobody sets: padding, empty structs, and members that this call does without.
They hold what lay on the stack before, and differ from process to process. In a program they are zero. A value that
follows the inputs is zero then, too, and what the program gives on other inputs is judged.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.gpu.addresses import BASE, SPAN
from tilewright.programs.identity import differences
from tilewright.programs.model import Kernel, Program
from tilewright.programs.order import AnyNode, Graph, canonical

WORD = 8


def agreed(first: Program, second: Program) -> Program | None:
    """The one program that two captures are, or None: they differ in more than in bytes of parameters that belong to no
    planned address."""
    if _outline(first) != _outline(second):
        return None
    one, other = _cleaned(first, second), _cleaned(second, first)
    return None if differences(one, other, most=1) else one


def _cleaned(program: Program, other: Program) -> Program:
    """The program with zeros where it differs from another of the same outline, but for words that hold a planned
    address in either."""
    nodes: list[AnyNode] = [*program.layout.nodes]
    for place, (node, twin) in enumerate(zip(nodes, other.layout.nodes, strict=True)):
        if isinstance(node, Kernel) and isinstance(twin, Kernel):
            pairs = zip(node.parameters, twin.parameters, strict=True)
            parameters = tuple(_shared(own, theirs) for own, theirs in pairs)
            nodes[place] = node.model_copy(update={"parameters": parameters})
    ordered, edges = canonical(Graph(nodes, program.layout.edges))
    return replace(program, layout=program.layout.model_copy(update={"nodes": ordered, "edges": edges}))


def _shared(own: bytes, theirs: bytes) -> bytes:
    """A parameter with zeros for the bytes that differ, but in words that hold a planned address."""
    return bytes(0 if byte != theirs[at] and not _planned(at, own, theirs) else byte for at, byte in enumerate(own))


def _planned(at: int, *values: bytes) -> bool:
    """Whether the word around a byte holds a planned address in one of the values."""
    start = at - at % WORD
    return any(BASE <= int.from_bytes(value[start : start + WORD], "little") < BASE + SPAN for value in values)


def _outline(program: Program) -> list[tuple[str, ...]]:
    """What programs have in common whose parameters can be compared: kinds, symbols, and sizes of parameters."""
    return [
        (node.kind, node.symbol, *(str(len(data)) for data in node.parameters))
        if isinstance(node, Kernel)
        else (node.kind,)
        for node in program.layout.nodes
    ]
