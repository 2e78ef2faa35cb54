"""Finds in calls of an entry point what its results need not show: races, accesses out of bounds, and outputs that rest
on undetermined padding or on memory that nobody wrote.

The entry point is called once for each filling of such memory. An output rests on it if its bytes differ. Then
bisection finds the line: the other filling is what some of the lines load, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from tilewright.interpreter.host import Launch, Mode, running
from tilewright.interpreter.races import Finding, Races
from tilewright.interpreter.undetermined import FILLINGS, MARK, PADDING, UNWRITTEN, Filling, Source, Undetermined

UNVISITED = "unvisited"
Call = Callable[[Undetermined], Sequence[torch.Tensor]]
"""Calls an entry point on fresh arguments. Of these, the memory that nobody wrote is filled by `Undetermined`."""
Outputs = list[torch.Tensor] | None
"""The bytes of each output, (elements, bytes); None where the call failed."""


def findings_of(call: Call) -> list[Finding]:
    """What is wrong with a call. Nothing where it launches no kernel of cuTile."""
    races = Races()
    with running(Mode.RUN, races=races) as launches:
        outputs = call(Undetermined())
    first = _bytes_of(outputs)
    findings = list(races.findings.values())
    if not launches or any(finding.kind == "out_of_bounds" for finding in findings):
        return findings
    trips = 1 + sum(launch.counts.loop_trips for launch in launches)
    filled = [(filling, _called(call, Undetermined(filling, trips))) for filling in FILLINGS[1:]]
    if all(_same(first, found) for _, found in filled):
        return findings
    if not _same(first, _called(call, Undetermined(loop_limit=trips))):
        return findings  # calls differ by themselves
    marked = _called(call, Undetermined(loop_limit=trips, sought=frozenset()))
    known = [(FILLINGS[0].byte, first), (MARK, marked), *((filling.byte, found) for filling, found in filled)]
    visited = [torch.zeros(len(output), dtype=torch.bool) for output in first]
    for byte, found in known:
        if found is not None and [one.shape for one in found] == [one.shape for one in first]:
            visited = [done | (output != byte).any(1) for done, output in zip(visited, found, strict=True)]
    findings += _unvisited(outputs, visited, launches, races)
    for filling, found in filled:
        if not _same(first, found, visited):
            return [*findings, _located(call, filling, trips, launches)]
    return findings


def _called(call: Call, undetermined: Undetermined) -> Outputs:
    try:
        with running(Mode.RUN, undetermined=undetermined):
            outputs = call(undetermined)
    except Exception:  # of the candidate, which did not fail in its first call
        return None
    return _bytes_of(outputs)


def _bytes_of(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    held = [output.detach() for output in outputs if output.device.type == "cpu" and output.layout is torch.strided]
    return [output.clone(memory_format=torch.contiguous_format).reshape(-1, 1).view(torch.uint8) for output in held]


def _same(left: Outputs, right: Outputs, where: Sequence[torch.Tensor] | None = None) -> bool:
    """Whether outputs are the same bytes, in the elements `where`."""
    if left is None or right is None or len(left) != len(right):
        return left is right
    if where is None:
        return all(torch.equal(one, other) for one, other in zip(left, right, strict=True))
    return all(
        one.shape == other.shape and torch.equal(one[done], other[done])
        for one, other, done in zip(left, right, where, strict=True)
    )


def _unvisited(
    outputs: Sequence[torch.Tensor], visited: Sequence[torch.Tensor], launches: Sequence[Launch], races: Races
) -> Iterable[Finding]:
    """The outputs of which elements hold in each call what memory was filled with."""
    names = {address: name for launch in launches for address, name in launch.names.items()}
    for number, (tensor, done) in enumerate(zip(outputs, visited, strict=True)):
        if done.all():
            continue
        place = torch.unravel_index((~done).nonzero()[0], tensor.shape)
        address = tensor.untyped_storage().data_ptr()
        message = f"{int((~done).sum())} of {done.numel()} elements of {names.get(address, f'output {number}')} are "
        message += f"written by no block, the first at {tuple(int(index) for index in place)}"
        for file, line, function in sorted(races.stores.get(address, {("", 0, "")})):
            where = f"the store is in {function}" if function else "no kernel stores to it"
            yield Finding(UNVISITED, file, line, f"{message}; {where}")


def _located(call: Call, filling: Filling, trips: int, launches: Sequence[Launch]) -> Finding:
    """The finding that `filling` shows, at the line that loads what decides."""
    base = Undetermined(filling, trips, frozenset())
    expected = _called(call, base)

    def decide(sources: Sequence[Source]) -> bool:
        return not _same(expected, _called(call, Undetermined(filling, trips, frozenset(sources))))

    suspects = list(base.sources)
    while len(suspects) > 1:
        half = suspects[: len(suspects) // 2]
        suspects = half if decide(half) else suspects[len(half) :]
    if not suspects or not decide(suspects):
        kernels = ", ".join(dict.fromkeys(launch.name for launch in launches))
        return Finding(UNWRITTEN, "", 0, f"outputs depend on what nobody has written or padded; launched: {kernels}")
    kind, file, line = suspects[0]
    what = "past the edge of {} with undetermined padding" if kind == PADDING else "what nobody has written to {}"
    return Finding(kind, file, line, f"loads {what.format(base.sources[suspects[0]])}, and the outputs depend on it")
