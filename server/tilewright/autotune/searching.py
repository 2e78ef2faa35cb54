"""The search: a race on the GPU, or what the model says without one, and the confirmation of the best."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.autotune.report import SearchResult, Tried, label
from tilewright.autotune.space import Kind, declared, kind_of, proposed
from tilewright.evaluation.evaluator import Tell
from tilewright.evaluation.results import ORIGINAL, CorrectnessResult, Raced, Status
from tilewright.evaluation.seeds import new_secret
from tilewright.knobs import SpaceError, Value
from tilewright.policy import Ratio, mean_of, ratio_of
from tilewright.repository import Files
from tilewright.session.beginning import Working
from tilewright.session.runs import Runs
from tilewright.task import Backend, Case, case_label

LIMIT_S = 3600.0
"""For each part of a search."""
COPIES_LIMIT = 4 * 2**30
"""Bytes of the disk that the configs' copies of the repository may take."""
CONFIRMED_AT_MOST = 6
"""Configs that may fail their confirmation before the original is left as it is."""
SAME = "the same program as "
"""How the reason begins why a config is left out of which another's measurement says all."""


class SearchFailed(Exception):
    """The candidate fails as it is, or nothing can be measured; with its status."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Wanted:
    """What is to be searched: the candidate's editable files, and the space: declared values, a kind, or neither."""

    found: Working
    values: Mapping[str, Sequence[Value]]
    kind: Kind | None


async def search(wanted: Wanted, backend: Backend, runs: Runs, tell: Tell) -> SearchResult:
    """Search the space. A config that fails is data; a candidate that fails as it is ends the search with its status,
    and so does a run that is void. Raises `SpaceError` and `UsageError`."""
    started = time.monotonic()
    knobs, environment = wanted.found.knobs(), await runs.environment()
    space = (
        declared(knobs, wanted.values)
        if wanted.values
        else proposed(knobs, wanted.kind or kind_of(wanted.found.files), environment.arch)
    )
    variants = [wanted.found.files | knobs.variant(config) for config in space.configs]
    if (size := len(variants) * sum(map(len, wanted.found.committed.values()))) > COPIES_LIMIT:
        raise SpaceError(
            f"each config has a copy of the tracked files, which is {size >> 20} MiB for {len(variants)} of them: give "
            "fewer values, or put the task into a smaller repository or a git worktree with sparse checkout"
        )
    about: dict[str, Any] = {
        "task": wanted.found.folder.as_posix(), "space": space.why, "backend": backend, "device": environment.device,
    }  # fmt: skip
    finished = _Search(space.configs, variants, backend, runs, tell)
    try:
        about |= await finished.run()
    except SearchFailed as failed:
        return SearchResult(status=failed.status, message=str(failed), **about)
    return SearchResult(status=Status.PASSED, seconds=time.monotonic() - started, **about)


class _Search:
    """The configs of a search, the original first, and what is known of each."""

    def __init__(
        self, configs: list[dict[str, Value]], variants: list[Files], backend: Backend, runs: Runs, tell: Tell
    ) -> None:
        self._configs, self._variants, self._backend = configs, variants, backend
        self._runs, self._tell = runs, tell
        self._tried: list[Tried] = []
        self._stayed: dict[str, set[int]] = {}
        self._original_passed = False

    async def run(self) -> dict[str, Any]:
        """The fields of a result. Raises `SearchFailed`."""
        cases, timed = await self._timed()
        labels = [case_label(case) for case in cases]
        self._tried = [self._judged(*one, labels) for one in zip(self._configs, timed, strict=True)]
        self._stayed = {
            case: {number for number, one in enumerate(timed) if not one[place].dropped}
            for place, case in enumerate(labels)
        }
        best, confirmed, why = await self._confirmed()
        checked, by_case = {ORIGINAL, best}, self._best_by_case(confirmed)
        while unchecked := {*by_case.values()} - checked:  # the best of a case has to be right, too
            number = unchecked.pop()
            self._tell(f"checking the best config of a case: {label(self._configs[number])}")
            if wrong := await self._wrong(number):
                self._fail(number, wrong)
                by_case = self._best_by_case(confirmed)
            else:
                checked.add(number)
        self._tried[best] = self._tried[best].model_copy(update={"place": "best"})
        return {
            "cases": labels,
            "tried": sorted(self._tried, key=_rank),
            "best": self._configs[best],
            "best_by_case": {case: self._configs[number] for case, number in by_case.items()},
            "confirmed": confirmed,
            "confirmation": why,
            "checked": [self._configs[number] for number in sorted(checked)],
        }

    async def _timed(self) -> tuple[list[Case], list[list[Raced]]]:
        """Each config's figures beside the original's, by case."""
        if self._backend is Backend.CUDA:
            raced = await self._runs.race(self._variants, new_secret(), LIMIT_S, self._tell)
            if raced.status is not Status.PASSED:
                raise SearchFailed(raced.status, raced.message)
            return raced.cases, raced.configs
        modelled = await self._runs.model(self._variants, LIMIT_S, self._tell)
        if modelled.status is not Status.PASSED:
            raise SearchFailed(modelled.status, modelled.message)
        original = modelled.variants[ORIGINAL]
        if original.status is not Status.PASSED:
            raise SearchFailed(original.status, original.message)
        return modelled.cases, [one.against(original) for one in modelled.variants]

    def _judged(self, config: dict[str, Value], timed: list[Raced], cases: list[str]) -> Tried:
        """What is said of a config by its figures in each case."""
        if failed := next((raced for raced in timed if raced.status is not Status.PASSED), None):
            return Tried(config=config, place="failed", why=f"{failed.status}: {failed.message}"[:500])
        first = timed[0].same
        if first is not None and all(raced.same == first for raced in timed):
            return Tried(config=config, place="pruned", why=f"{SAME}{label(self._configs[first])}")
        if all(raced.dropped and not raced.rounds for raced in timed):
            return Tried(config=config, place="pruned", why=timed[0].message)
        by_case = {
            case: Ratio(speedup=raced.speedup, low=raced.low or raced.speedup, high=raced.high or raced.speedup)
            for case, raced in zip(cases, timed, strict=True)
            if raced.speedup is not None
        }
        return Tried(
            config=config,
            place="measured" if self._backend is Backend.CUDA else "modelled",
            why="it left the race early" if all(raced.dropped for raced in timed) else "",
            ms={case: raced.ms for case, raced in zip(cases, timed, strict=True) if raced.ms is not None},
            by_case=by_case,
            speedup=mean_of([*by_case.values()]) if len(by_case) == len(cases) else None,
        )

    async def _confirmed(self) -> tuple[int, Ratio | None, str]:
        """The best config over all cases that is right, and faster when it is measured anew; or the original, and why
        it stays."""
        why = "no config is better than the original by more than can be measured"
        for _ in range(CONFIRMED_AT_MOST):
            best = self._first(set().union(*self._stayed.values()))
            if best == ORIGINAL:
                break
            self._tell(f"confirming the best config: {label(self._configs[best])}")
            found: Ratio | str = await self._wrong(best) or await self._measured_anew(best)
            if isinstance(found, Ratio):
                return best, found, ""
            why = found
            self._fail(best, why)
        return ORIGINAL, None, why

    def _best_by_case(self, confirmed: Ratio | None) -> dict[str, int]:
        return {case: self._first(here, case) if confirmed else ORIGINAL for case, here in self._stayed.items()}

    def _first(self, numbers: set[int], case: str | None = None) -> int:
        """The config of the largest gain, in a case or over all; the original where none can be told from it."""

        def gain(number: int) -> float:
            one = self._tried[number]
            speedup = one.by_case.get(case) if case is not None else one.speedup
            return speedup.speedup if speedup is not None and speedup.low > 1 else 1.0

        return max([ORIGINAL, *sorted(numbers)], key=gain)

    def _fail(self, number: int, why: str) -> None:
        self._tried[number] = Tried(config=self._configs[number], place="failed", why=why)

    async def _wrong(self, number: int) -> str:
        """What a check says against a config; empty where it is right. A config that is wrong has the original checked,
        too. Raises `SearchFailed` where that is wrong."""
        found = await self._check(number)
        if found.status is Status.PASSED:
            return ""
        if not self._original_passed:
            self._tell("a config is wrong: checking the candidate as it is")
            original = await self._check(ORIGINAL)
            if original.status not in (Status.PASSED, Status.TIMEOUT):
                raise SearchFailed(original.status, original.message)
            self._original_passed = True
        return f"{found.status}: {found.message}"

    async def _check(self, number: int) -> CorrectnessResult:
        found = await self._runs.correctness(self._variants[number], new_secret(), LIMIT_S, self._tell)
        if found.status is Status.VOID:
            raise SearchFailed(Status.VOID, found.message)
        return found

    async def _measured_anew(self, number: int) -> Ratio | str:
        """A config against the original once more, or why that shows no gain."""
        original = self._variants[ORIGINAL]
        found = await self._runs.benchmark(self._variants[number], original, new_secret(), LIMIT_S, self._tell)
        if found.status is Status.VOID:
            raise SearchFailed(Status.VOID, found.message)
        if found.same:
            return "it compiles to the same program as the original"
        ratio = ratio_of(found)
        if ratio is None:
            return f"it could not be measured anew: {found.status}: {found.message}"
        return ratio if ratio.low > 1 else f"measured anew the gain is gone: {ratio}"


def _rank(one: Tried) -> tuple[int, float]:
    order = {"best": 0, "measured": 1, "modelled": 1, "pruned": 2, "failed": 3}
    return order[one.place], -one.speedup.speedup if one.speedup is not None else 0.0
