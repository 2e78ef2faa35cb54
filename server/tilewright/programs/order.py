"""One order for the nodes of a graph, whatever order a capture gave them.

A stream capture lists forked branches in an order that changes from run to run, and the order in which branches are
launched changes the time. So nodes are sorted before a program is compared or built. A node comes after those that it
waits for. Among the nodes that could come next, the one with the longest path behind it does; then the one whose
description sorts first; then the one that waits for earlier nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilewright.programs.model import Copy, Edge, Kernel, Memset, ProgramError

AnyNode = Kernel | Memset | Copy
Data = tuple[int, int, int]
Description = tuple[str, ...]


class Graph(NamedTuple):
    """Nodes as a capture gave them, `None` for one that does nothing; edges may lead anywhere."""

    nodes: Sequence[AnyNode | None]
    edges: Sequence[Edge]


def _described(node: AnyNode) -> Description:
    """By what nodes are sorted: first what an edit of the code leaves alone, so that two versions launch alike."""
    if isinstance(node, Kernel):
        return (node.kind, node.symbol, *(value.hex() for value in node.parameters), node.model_dump_json())
    return (node.kind, node.model_dump_json())


def canonical(
    graph: Graph, described_by: Callable[[AnyNode], Description] = _described
) -> tuple[tuple[AnyNode, ...], tuple[Edge, ...]]:
    """The nodes and edges in the one order, without those that do nothing. Raises `ProgramError` for a circle. Equal
    nodes that wait for the same ones, and differ in what waits for them, keep the order of the graph: two captures can
    differ then, and are no program."""
    nodes, arrows = _without_empty(graph)
    before: list[list[int]] = [[] for _ in nodes]
    after: list[list[int]] = [[] for _ in nodes]
    for one, other in arrows:
        before[other].append(one)
        after[one].append(other)
    height = _heights(before, after)
    described = [described_by(node) for node in nodes]
    ranks = {text: rank for rank, text in enumerate(sorted({*described}))}
    place: dict[int, int] = {}

    def key(number: int) -> tuple[int, int, list[int], int]:
        return -height[number], ranks[described[number]], sorted(place[one] for one in before[number]), number

    waiting = [len(found) for found in before]
    ready = [key(number) for number, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    while ready:
        best = heapq.heappop(ready)[-1]
        place[best] = len(place)
        for number in after[best]:
            waiting[number] -= 1
            if not waiting[number]:
                heapq.heappush(ready, key(number))
    edges = (
        Edge(before=place[one], after=place[other], from_port=data[0], to_port=data[1], data=data[2])
        for (one, other), data in arrows.items()
    )
    return tuple(nodes[number] for number in place), tuple(sorted(edges, key=lambda edge: (edge.before, edge.after)))


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


def _heights(before: list[list[int]], after: list[list[int]]) -> list[int]:
    """Nodes on the longest path from each node to the end. Raises `ProgramError` for a circle."""
    height, waiting = [1] * len(after), [len(found) for found in after]
    done = [number for number, count in enumerate(waiting) if not count]
    for number in done:
        for one in before[number]:
            height[one] = max(height[one], height[number] + 1)
            waiting[one] -= 1
            if not waiting[one]:
                done.append(one)
    if len(done) != len(after):
        raise ProgramError("its nodes wait for one another in a circle")
    return height
