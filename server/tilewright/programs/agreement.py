"""Whether two captures of one call are one program.

Parameters of C++ kernels have bytes that nobody sets: padding, empty structs, and members that this call does without.
They hold what lay on the stack before, and differ from process to process. In a program they are zero. A value that
follows the inputs is zero then, too, and what the program gives on other inputs is judged.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.gpu.addresses import BASE, SPAN
from tilewright.programs.identity import differences, identity
from tilewright.programs.model import Kernel, Program
from tilewright.programs.order import AnyNode, Graph, canonical

WORD = 8
HALF = 4
Unset = frozenset[tuple[int, int, int]]
"""Halves of words in which captures of one program differ: a node's number, a parameter's, and the first byte."""


class Agreed(NamedTuple):
    """What captures agree in."""

    program: Program
    unset: Unset = frozenset()


def agreed(first: Program, second: Program) -> Agreed | None:
    """The one program that two captures are, or None: they differ in more than in bytes of parameters that belong to no
    planned address."""
    if _outline(first) != _outline(second):
        return None
    one, other = _cleaned(first, second), _cleaned(second, first)
    return None if differences(one.program, other.program, most=1) else one


def _unset(alike: Sequence[Program], last: Program) -> Unset:
    """The words in which captures on equal values differ."""
    layouts = [program.layout for program in alike if _outline(program) == _outline(last)]
    return {
        (place, number, at)
        for place, node in enumerate(last.layout.nodes)
        if isinstance(node, Kernel)
        for number, own in enumerate(node.parameters)
        for at in range(0, len(own), WORD)
        if len({_parameter(layout.nodes[place], number)[at : at + WORD] for layout in layouts}) > 1
    }


def _cleared(program: Program, other: Program, unset: Unset) -> Program:
    """The program with zeros where it differs from another one in these words."""
    if _outline(program) != _outline(other):
        return program
    nodes: list[AnyNode] = [*program.layout.nodes]
    for place, number, at in unset:
        if place < len(nodes) and isinstance(node := nodes[place], Kernel) and number < len(node.parameters):
            values = [*node.parameters]
            values[number] = values[number][:at] + bytes(len(values[number][at:][:HALF])) + values[number][at + HALF :]
            nodes[place] = node.model_copy(update={"parameters": tuple(values)})
    return replace(program, layout=program.layout.model_copy(update={"nodes": tuple(nodes)}))


def _cleaned(program: Program, other: Program) -> Agreed:
    """The program with zeros where it differs from another of the same outline, but for words that hold a planned
    address in either."""
    nodes: list[AnyNode] = [*program.layout.nodes]
    unset: dict[int, set[tuple[int, int]]] = {}
    for place, (node, twin) in enumerate(zip(nodes, other.layout.nodes, strict=True)):
        if not (isinstance(node, Kernel) and isinstance(twin, Kernel)) or node.parameters == twin.parameters:
            continue
        kept, halves = [*node.parameters], set[tuple[int, int]]()
        for number, (own, theirs) in enumerate(zip(node.parameters, twin.parameters, strict=True)):
            chance = [at for at in range(len(own)) if own[at] != theirs[at] and not _planned(at, own, theirs)]
            kept[number] = bytes(0 if at in chance else byte for at, byte in enumerate(own)) if chance else own
            halves |= {(number, at - at % HALF) for at in chance}
        nodes[place] = node.model_copy(update={"parameters": tuple(kept)})
        unset[id(nodes[place])] = halves
    ordered, edges = canonical(Graph(nodes, program.layout.edges))
    return replace(program, layout=program.layout.model_copy(update={"nodes": ordered, "edges": edges}))


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
