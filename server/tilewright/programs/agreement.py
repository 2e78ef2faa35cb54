"""Whether two captures of one call are one program.

Kernels of C++ take structs by value, and these have bytes that nobody sets: padding, empty structs, and members that
this call does without. They hold what lay on the stack before, and differ from process to process. In a program they
are zero. A member that follows the inputs is zero then, too, and what the program gives on other inputs is judged. A
parameter of up to eight bytes is a number or an address: captures that differ in it are two programs.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.gpu.addresses import BASE, SPAN
from tilewright.programs.identity import differences
from tilewright.programs.model import Kernel, Program
from tilewright.programs.order import AnyNode, Description, Graph, canonical

WORD = 8
CPP = "_Z"
"""How the mangled names of C++ begin."""


def agreed(first: Program, second: Program) -> Program | None:
    """The one program that two captures are, or None: they differ in more than in bytes of structs that belong to no
    planned address, or it cannot be told which node of one is which of the other."""
    if not differences(first, second, most=1):
        return first
    one, other = _paired(first), _paired(second)
    if one is None or other is None or _outline(one) != _outline(other):
        return None
    one, other = _cleaned(one, other), _cleaned(other, one)
    return None if differences(one, other, most=1) else one


def _paired(program: Program) -> Program | None:
    """The program, with its nodes in an order that no byte decides which may be zeroed. None where such bytes alone
    tell nodes apart of which none waits for the other."""
    nodes, edges = canonical(Graph(program.layout.nodes, program.layout.edges), _lasting)
    before = [0] * len(nodes)
    """A bit for each node that a node waits for."""
    for edge in sorted(edges, key=lambda edge: edge.after):
        before[edge.after] |= before[edge.before] | 1 << edge.before
    alike: dict[Description, int] = {}
    for place, node in enumerate(nodes):
        key = _lasting(node)
        beside = alike.get(key, 0) & ~before[place]
        if beside and any(beside >> twin & 1 and nodes[twin] != node for twin in range(place)):
            return None
        alike[key] = alike.get(key, 0) | 1 << place
    return replace(program, layout=program.layout.model_copy(update={"nodes": nodes, "edges": edges}))


def _lasting(node: AnyNode) -> Description:
    """What of a node is the same in each capture."""
    if isinstance(node, Kernel):
        kept = tuple(
            bytes(byte if not loose or _planned(at, value) else 0 for at, byte in enumerate(value))
            for value, loose in zip(node.parameters, _loose(node), strict=True)
        )
        return (node.kind, node.symbol, node.model_copy(update={"parameters": kept}).model_dump_json())
    return (node.kind, node.model_dump_json())


def _loose(node: Kernel) -> list[bool]:
    """Whether each parameter is a struct: a larger one, and a byte of a kernel of C++, which is an empty one."""
    return [len(value) > WORD or (len(value) == 1 and node.symbol.startswith(CPP)) for value in node.parameters]


def _cleaned(program: Program, other: Program) -> Program:
    """The program with zeros where a struct differs from that of another program of the same outline, but for words
    that hold a planned address in either."""
    nodes: list[AnyNode] = [*program.layout.nodes]
    for place, (node, twin) in enumerate(zip(nodes, other.layout.nodes, strict=True)):
        if isinstance(node, Kernel) and isinstance(twin, Kernel):
            triples = zip(node.parameters, twin.parameters, _loose(node), strict=True)
            parameters = tuple(_shared(own, theirs) if loose else own for own, theirs, loose in triples)
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
