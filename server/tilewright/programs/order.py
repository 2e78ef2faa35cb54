"""One order for the nodes of a graph, whatever order a capture gave them.

A stream capture lists forked branches in an order that changes from run to run, and the order in which branches are
launched changes the time. So nodes are sorted before a program is compared or built: a node comes after those that it
waits for, and among those that could come next the one with most nodes still behind it (on its longest path) does, then
the one whose description sorts first. Where descriptions are equal, what lies before and behind a node decides (colour
refinement, B. Weisfeiler and A. Leman, 1968), and at last an arbitrary one of those that are still equal, after which
the refinement goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from tilewright.programs.model import Copy, Edge, Kernel, Memset, ProgramError

AnyNode = Kernel | Memset | Copy
MAX_REFINED = 3_000_000
"""Nodes and edges that are looked at while nodes are told apart: some seconds. More only a graph takes that is made of
very many nodes that are all alike."""
Data = tuple[int, int, int]


class Graph(NamedTuple):
    """Nodes as a capture gave them, `None` for one that does nothing; edges may lead anywhere."""

    nodes: Sequence[AnyNode | None]
    edges: Sequence[Edge]


def canonical(graph: Graph) -> tuple[tuple[AnyNode, ...], tuple[Edge, ...]]:
    """The nodes and edges in the one order, without those that do nothing. Raises `ProgramError` for a circle, and for
    too many nodes that are alike. Graphs in which nodes stay equal that play different parts (they have to be very
    regular) can have several orders: two captures of one then differ, and are no program."""
    nodes, arrows = _without_empty(graph)
    before: list[list[tuple[int, Data]]] = [[] for _ in nodes]
    after: list[list[tuple[int, Data]]] = [[] for _ in nodes]
    for (one, other), data in arrows.items():
        before[other].append((one, data))
        after[one].append((other, data))
    height, depth = _heights(before, after), _heights(after, before)
    described = [_described(node) for node in nodes]
    budget = [MAX_REFINED]
    start = [_hash(repr(found)) for found in zip(described, height, depth, strict=True)]
    colour = _refined(start, before, after, budget)
    order: list[int] = []
    waiting = [len(found) for found in before]
    ready = [number for number, count in enumerate(waiting) if not count]
    while ready:
        best = min(ready, key=lambda number: (-height[number], described[number], colour[number]))
        tied = [n for n in ready if (height[n], colour[n]) == (height[best], colour[best])]
        if len(tied) > 1 and (before[best] or after[best]):
            colour[best] = _hash(f"{colour[best]} {len(order)}")
            colour = _refined(colour, before, after, budget)
        ready.remove(best)
        order.append(best)
        for number, _ in after[best]:
            waiting[number] -= 1
            if not waiting[number]:
                ready.append(number)
    place = {number: at for at, number in enumerate(order)}
    edges = (
        Edge(before=place[one], after=place[other], from_port=data[0], to_port=data[1], data=data[2])
        for (one, other), data in arrows.items()
    )
    return tuple(nodes[number] for number in order), tuple(sorted(edges, key=lambda edge: (edge.before, edge.after)))


def _without_empty(graph: Graph) -> tuple[list[AnyNode], dict[tuple[int, int], Data]]:
    """The nodes that do something, and the edges between them: one that led through a node that does nothing leads
    past it."""
    arrows: dict[tuple[int, int], Data] = {}
    for edge in graph.edges:
        if not (0 <= edge.before < len(graph.nodes) and 0 <= edge.after < len(graph.nodes)):
            raise ProgramError("an edge names a node that is not there")
        arrows[edge.before, edge.after] = (edge.from_port, edge.to_port, edge.data)
    for number, node in enumerate(graph.nodes):
        if node is not None:
            continue
        into = [one for one, other in arrows if other == number]
        out = [other for one, other in arrows if one == number]
        if number in into:
            raise ProgramError("its nodes wait for one another in a circle")
        for one, other in [pair for pair in arrows if number in pair]:
            if any(arrows[one, other]):
                raise ProgramError("a programmatic edge leads to or from a node that does nothing")
            del arrows[one, other]
        for one in into:
            for other in out:
                arrows.setdefault((one, other), (0, 0, 0))
    kept = [number for number, node in enumerate(graph.nodes) if node is not None]
    place = {number: at for at, number in enumerate(kept)}
    nodes = [node for node in graph.nodes if node is not None]
    return nodes, {(place[one], place[other]): data for (one, other), data in arrows.items()}


def _described(node: AnyNode) -> tuple[str, ...]:
    """By what nodes are sorted: first what an edit of the code leaves alone, so that two versions launch alike."""
    if isinstance(node, Kernel):
        return (node.kind, node.symbol, *(value.hex() for value in node.parameters), node.model_dump_json())
    return (node.kind, node.model_dump_json())


def _heights(before: list[list[tuple[int, Data]]], after: list[list[tuple[int, Data]]]) -> list[int]:
    """Nodes on the longest path from each node to the end; to the start, with the arguments the other way round.
    Raises `ProgramError` for a circle."""
    height, waiting = [1] * len(after), [len(found) for found in after]
    done = [number for number, count in enumerate(waiting) if not count]
    for number in done:
        for one, _ in before[number]:
            height[one] = max(height[one], height[number] + 1)
            waiting[one] -= 1
            if not waiting[one]:
                done.append(one)
    if len(done) != len(after):
        raise ProgramError("its nodes wait for one another in a circle")
    return height


def _refined(
    colour: list[str],
    before: list[list[tuple[int, Data]]],
    after: list[list[tuple[int, Data]]],
    budget: list[int],
) -> list[str]:
    """Colours that also tell nodes apart by the colours of their neighbours, until that tells no more apart."""
    kinds, size = len(set(colour)), len(colour) + 2 * sum(map(len, before))
    while kinds < len(colour):
        budget[0] -= size
        if budget[0] < 0:
            raise ProgramError("too many of its nodes are alike to be put in order")
        colour = [
            _hash(
                repr(
                    (
                        colour[number],
                        sorted((colour[one], data) for one, data in before[number]),
                        sorted((colour[other], data) for other, data in after[number]),
                    )
                )
            )
            for number in range(len(colour))
        ]
        if len(set(colour)) == kinds:
            break
        kinds = len(set(colour))
    return colour


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
