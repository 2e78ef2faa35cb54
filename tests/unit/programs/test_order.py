"""The order of nodes does not depend on the order in which a capture lists them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.programs.made import OUT, clear, copied, cubin, fill
from tilewright.programs.model import Copy, Edge, Kernel, Memset, ProgramError
from tilewright.programs.order import Graph, canonical

Nodes = list[Kernel | Memset | Copy | None]


def shuffled(nodes: Nodes, edges: list[tuple[int, int]], seed: int) -> Graph:
    """The same graph, listed in another order."""
    places = list(range(len(nodes)))
    source = random.Random(seed)
    source.shuffle(places)
    listed: Nodes = [None] * len(nodes)
    for number, place in enumerate(places):
        listed[place] = nodes[number]
    arrows = [Edge(before=places[a], after=places[b]) for a, b in edges]
    source.shuffle(arrows)
    return Graph(listed, arrows)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Nodes, list[tuple[int, int]]]:
    """Graphs with several kinds of nodes, and some that do nothing."""
    cubin()
    kinds: Nodes = [fill(OUT, 1), fill(OUT, 2), clear(), copied(), None]
    nodes = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=12))
    pairs = [(a, b) for b in range(len(nodes)) for a in range(b)]
    return nodes, draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []


@given(graphs(), st.integers(0, 10**6))
def test_the_order_of_a_graph_does_not_depend_on_how_it_is_listed(
    graph: tuple[Nodes, list[tuple[int, int]]], seed: int
) -> None:
    nodes, edges = graph
    named: Nodes = [None if node is None else fill(OUT, number) for number, node in enumerate(nodes)]
    first = canonical(shuffled(named, edges, seed))
    assert first == canonical(shuffled(named, edges, seed + 1))
    assert len(first[0]) == sum(node is not None for node in nodes)
    assert all(edge.before < edge.after for edge in first[1])


def test_equal_nodes_are_told_apart_by_what_they_wait_for() -> None:
    """Two streams that launch the same kernel, each after one of its own."""
    nodes: Nodes = [fill(OUT, 1), fill(OUT, 2), *[fill(OUT, 3)] * 2, fill(OUT, 4)]
    edges = [(0, 2), (1, 3), (3, 4)]
    orders = {repr(canonical(shuffled(nodes, edges, seed))) for seed in range(50)}
    assert len(orders) == 1
    twins: Nodes = [fill(OUT, 1), *[fill(OUT, 3)] * 2]
    assert len({repr(canonical(shuffled(twins, [(0, 1), (0, 2)], seed))) for seed in range(50)}) == 1


@given(graphs())
def test_what_waits_still_waits_where_empty_nodes_are_left_out(graph: tuple[Nodes, list[tuple[int, int]]]) -> None:
    nodes, edges = graph
    named = [None if node is None else fill(OUT, number) for number, node in enumerate(nodes)]  # now told apart
    ordered, arrows = canonical(Graph(named, [Edge(before=a, after=b) for a, b in edges]))
    numbers = [int.from_bytes(node.parameters[1], "little") for node in ordered if isinstance(node, Kernel)]
    after = reach({(numbers[edge.before], numbers[edge.after]) for edge in arrows})
    kept = set(numbers)
    assert after == {(a, b) for a, b in reach(set(edges)) if a in kept and b in kept}


def reach(edges: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """All pairs of which the second waits for the first, directly or not."""
    while more := {(a, d) for a, b in edges for c, d in edges if b == c} - edges:
        edges = edges | more
    return edges


def test_the_longest_path_is_launched_first() -> None:
    long, short = [fill(OUT, 1), fill(OUT, 2)], fill(OUT, 0)
    nodes, _ = canonical(Graph([short, *long], [Edge(before=1, after=2)]))
    assert nodes == (*long, short) or nodes == (long[0], short, long[1])
    assert nodes[0] == long[0]


def test_an_edit_of_a_kernel_does_not_change_the_order_of_branches() -> None:
    one, other, edited = fill(OUT, 1), fill(OUT, 2), fill(OUT, 1, cubin("fill", "sm_80"))
    assert canonical(Graph([other, one], []))[0] == (one, other)
    assert canonical(Graph([other, edited], []))[0] == (edited, other)


@pytest.mark.parametrize("edges", [[(0, 1), (1, 0)], [(0, 0)], [(0, 1), (1, 2), (2, 0)]])
def test_a_circle_is_an_error(edges: list[tuple[int, int]]) -> None:
    nodes: Nodes = [fill(OUT, 1), None, fill(OUT, 2)]
    with pytest.raises(ProgramError, match="circle"):
        canonical(Graph(nodes, [Edge(before=a, after=b) for a, b in edges]))


def test_thousands_of_nodes_that_are_alike_are_put_in_order() -> None:
    nodes: Nodes = [fill(OUT, 1)] * 4096
    chain = [Edge(before=n, after=n + 1) for n in range(4095)]
    assert canonical(Graph(nodes, chain)) == (tuple(nodes), tuple(chain))
    assert len(canonical(Graph(nodes, [Edge(before=0, after=n) for n in range(1, 4096)]))[0]) == 4096
