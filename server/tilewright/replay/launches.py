"""What calls of a program launch, and how long each launch takes, by CUPTI."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.gpu.cupti import Activity, NotRecorded, Recorder
from tilewright.replay.calls import Call
from tilewright.wire.launches import Launch


class Recording:
    """What the GPU did for the calls that were watched."""

    def __init__(self, recorder: Recorder | NotRecorded | None) -> None:
        """`recorder`: why there is none, or None where nothing is to be recorded."""
        self._recorder = recorder
        self.launches: list[Launch] = []
        self.us: list[list[float]] = []
        self.not_recorded = ""

    def watch(self, run: Callable[[], list[Call]]) -> list[Call]:
        """The calls that `run` makes. Their kernels are loaded as long as it runs: records lead to their names."""
        calls: list[Call] = []
        if self._recorder is None:
            return run()
        try:
            if isinstance(self._recorder, NotRecorded):
                raise self._recorder
            activities = self._recorder.record(lambda: calls.extend(run()))
            self.launches, self.us = by_call(activities, len(calls))
        except NotRecorded as error:
            self.not_recorded = str(error)[:1000]
        return calls or run()


def by_call(activities: list[Activity], calls: int) -> tuple[list[Launch], list[list[float]]]:
    """What a call launched, and the microseconds of each launch in each call. A call is one launch of a graph; what the
    replayer launches beside it is in none. Raises `NotRecorded` where something is missing."""
    found: dict[int, list[Activity]] = {}
    for one in sorted(activities, key=lambda one: (one.node, one.start)):
        if one.node:
            found.setdefault(one.call, []).append(one)
    if len(found) != calls or len({len(call) for call in found.values()}) != 1:
        raise NotRecorded(f"CUPTI recorded {sum(map(len, found.values()))} launches in {len(found)} of {calls} calls")
    first, *_ = ordered = [found[call] for call in sorted(found)]
    places = sorted(range(len(first)), key=lambda place: first[place].start)
    return [first[place].launch for place in places], [
        [(call[place].end - call[place].start) / 1e3 for place in places] for call in ordered
    ]
