"""The search: its space, a race on the GPU, or what the model says without one, and the confirmation of the best."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.autotune import modelled
from tilewright.autotune.report import SearchResult, Speedup, Tried, geometric, label
from tilewright.autotune.space import Kind, declared, kind_of, proposed
from tilewright.evaluation.results import (
    ORIGINAL,
    CorrectnessResult,
    Environment,
    Raced,
    Shaped,
    Status,
    Surveyed,
)
from tilewright.evaluation.seeds import new_secret
from tilewright.gpu.specs import spec_by_arch
from tilewright.knobs import Knobs, SpaceError, Value
from tilewright.repository import Files
from tilewright.session.beginning import Working
from tilewright.session.outcomes import SurveyResult
from tilewright.session.runs import Runs
from tilewright.task import Backend, Frontend, case_label

LIMIT_S = 3600.0
"""For each part of a search."""
COPIES_LIMIT = 4 * 2**30
"""Bytes of the disk that the configs' copies of the repository may take."""
AS_IT_IS = "the candidate fails as it is"
CONFIRMED_AT_MOST = 6
"""Configs that may fail their confirmation before the original is left as it is."""
SAME = "the same machine code as "
"""How the reason begins why a config is left out of which another's measurement says all."""
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What is to be searched: the candidate's editable files, and the space: declared values, a kind, or neither."""

    found: Working
    values: Mapping[str, Sequence[Value]]
    kind: Kind | None

    @property
    def files(self) -> Files:
        return self.found.files

    @property
    def unmodelled(self) -> bool:
        """Whether nothing but the race can tell configs apart: no model knows what a Triton kernel does."""
        return self.found.task.file.frontend is Frontend.TRITON

    def knobs(self, launched: Collection[str] | None = None) -> Knobs:
        """Raises `SpaceError`."""
        return self.found.knobs(launched)


async def search(wanted: Wanted, backend: Backend, modelling: Runs, measuring: Runs, tell: Tell) -> SearchResult:
    """Search the space on `backend`. `modelling` runs on the `cpu` backend; `measuring`, on `backend`, gives verdicts.

    A config that fails is data; a candidate that fails as it is ends the search with its status. Raises `SpaceError`
    and `UsageError`.
    """
    started = time.monotonic()
    knobs = wanted.knobs()
    space = declared(knobs, wanted.values) if wanted.values else None
    environment = await measuring.environment()
    base = _result(wanted, backend, environment)
    if space is None:
        kind = wanted.kind
        if kind is None:
            tell("looking for the kernel's kind")
            first = await modelling.survey([wanted.files], backend, LIMIT_S, tell)
            if failed := _failure(first, backend):
                return base.model_copy(update=failed)
            kind = _kind(first.variants[ORIGINAL], first.tensors, environment.arch)
        space = proposed(knobs, kind, environment.arch)
    variants = _variants(wanted, knobs, space.configs)
    labels = [label(config) for config in space.configs]
    seen: list[Surveyed] = []
    if backend is Backend.CUDA:
        raced = await measuring.race(variants, new_secret(), LIMIT_S, tell)
        if raced.status in (Status.VOID, Status.NOT_REPLAYED, Status.TIMEOUT):
            return base.model_copy(update={"status": raced.status, "message": raced.message})
        if raced.status is not Status.PASSED:
            return base.model_copy(update=_as_it_is(raced.status, raced.message))
        cases, timed = [case_label(case) for case in raced.cases], raced.configs
        names = {symbol.partition("_Kt")[0] for symbol in raced.symbols}  # as cuTile's, and all of Triton's
        launched = sorted(names & {kernel.name for kernel in knobs.kernels})
    else:
        surveyed = await modelling.survey(variants, backend, LIMIT_S, tell)
        if failed := _failure(surveyed, backend):
            return base.model_copy(update=failed)
        cases, seen = [case_label(case) for case in surveyed.cases], surveyed.variants
        timed = modelled.raced(seen, len(cases))
        launched = sorted({one.kernel for variant in seen for call in variant.profiles for one in call.launches})
    tried = [
        _tried(config, one, cases, labels, seen[number] if seen else None)
        for number, (config, one) in enumerate(zip(space.configs, timed, strict=True))
    ]
    stayed = [{number for number, one in enumerate(timed) if not one[place].dropped} for place in range(len(cases))]
    check = _Check(variants, measuring, tell)
    confirmed, words = None, "no config is better than the original by more than can be measured"
    for _ in range(CONFIRMED_AT_MOST):
        best, by_case, loss = _best(tried, cases, stayed)
        if best == ORIGINAL:
            break
        tell("confirming the best config: checking it")
        wrong = await check.of(best)
        if check.original is not None:
            return base.model_copy(update=_as_it_is(check.original.status, check.original.message))
        if wrong is not None:
            what = "could not be checked" if wrong.status is Status.VOID else "is wrong"
            words = f"the best config {what}, and is not proposed: {wrong.status}: {wrong.message}"
        else:
            confirmed, words = await _confirm(wanted, variants[best], measuring, tell)
        if confirmed is not None:
            break
        _fail(tried, best, words)
    else:
        best, by_case, loss = ORIGINAL, dict.fromkeys(cases, ORIGINAL), 0.0
    checked = {ORIGINAL, best}
    while unchecked := set(by_case.values()) - checked:  # the best of a case has to be right, too
        number = unchecked.pop()
        tell(f"checking the best config of a case: {tried[number].label}")
        wrong = await check.of(number)
        if check.original is not None:
            return base.model_copy(update=_as_it_is(check.original.status, check.original.message))
        if wrong is None:
            checked.add(number)
        else:
            _fail(tried, number, f"{wrong.status}: {wrong.message}")
            _, by_case, loss = _best(tried, cases, stayed)
    ranked = sorted(range(len(tried)), key=lambda number: _rank(tried[number], number == best))
    tried[best] = tried[best].model_copy(update={"place": "best"})
    return base.model_copy(
        update={
            "status": Status.PASSED,
            "space": space.why,
            "warning": space.warning,
            "modelled": backend is Backend.CPU,
            "cases": cases,
            "tried": [tried[number] for number in ranked],
            "original": knobs.original(sorted({name for config in space.configs for name in config})),
            "best": space.configs[best],
            "best_by_case": {case: space.configs[number] for case, number in by_case.items()},
            "loss": loss,
            "checked": [space.configs[number] for number in sorted(checked)],
            "launched": launched,
            "confirmed": confirmed,
            "confirmation": words,
            "seconds": time.monotonic() - started,
        }
    )


def _failure(surveyed: SurveyResult, backend: Backend) -> dict[str, Any]:
    """What a search's result says where a survey, or its original, failed; nothing where that can still be measured:
    it took the model too long, or the interpreter does not know one of the kernel's operations."""
    if surveyed.status is not Status.PASSED:
        return {"status": surveyed.status, "message": surveyed.message}
    original = surveyed.variants[ORIGINAL]
    unknown = original.status is Status.TIMEOUT or original.message.startswith("UnsupportedOperation")
    if original.status is Status.PASSED or (unknown and backend is Backend.CUDA):
        return {}
    return _as_it_is(original.status, original.message)


def _as_it_is(status: Status, message: str) -> dict[str, Any]:
    return {"status": status, "message": f"{AS_IT_IS}: {message}"}


def _variants(wanted: Wanted, knobs: Knobs, configs: Sequence[Mapping[str, Value]]) -> list[Files]:
    """The files of each config, the original first. Raises `SpaceError` where their copies are too large."""
    found = [wanted.files | knobs.variant(config) for config in configs]
    if (size := len(found) * sum(map(len, wanted.found.committed.values()))) > COPIES_LIMIT:
        raise SpaceError(
            f"each config has a copy of the tracked files, which is {size >> 20} MiB for {len(found)} of them: give "
            "fewer values, or put the task into a smaller repository or a git worktree with sparse checkout"
        )
    return found


def _kind(original: Surveyed, tensors: Sequence[Shaped], arch: str) -> Kind:
    if not original.profiles:
        raise SpaceError(f"declare the space, or name the kernel's kind, which is unknown: {original.message}")
    launches = original.profiles[0].launches
    overwritten = {name for launch in launches for name in launch.overwritten}
    return kind_of(original.profiles[0], overwritten, {one.dtype for one in tensors}, spec_by_arch(arch).sms)


def _result(wanted: Wanted, backend: Backend, environment: Environment) -> SearchResult:
    return SearchResult(
        status=Status.VOID,
        task=wanted.found.folder.as_posix(),
        backend=backend,
        device=environment.device,
        toolkit=environment.toolkit,
    )


def _tried(
    config: dict[str, Value], timed: list[Raced], cases: list[str], labels: list[str], seen: Surveyed | None
) -> Tried:
    """What is said of a config by its figures in each case; `seen`: what the model saw of it, if that was asked."""
    launch = modelled.longest(seen) if seen is not None else None
    known = {
        "config": config,
        "resources": launch.resources if launch is not None else None,
        "modelled_ms": modelled.ms(seen) if seen is not None else None,
    }
    if failed := next((raced for raced in timed if raced.status is not Status.PASSED), None):
        return Tried(place="failed", why=f"{failed.status}: {failed.message}"[:500], **known)
    by_case = {
        case: Speedup(value=raced.speedup, low=raced.low or raced.speedup, high=raced.high or raced.speedup)
        for case, raced in zip(cases, timed, strict=True)
        if raced.speedup is not None
    }
    first = timed[0].same
    twin = first is not None and all(raced.same == first for raced in timed)
    far = seen is None and all(raced.dropped and not raced.rounds for raced in timed)
    if twin or far:
        return Tried(place="pruned", why=f"{SAME}{labels[first or ORIGINAL]}" if twin else timed[0].message, **known)
    return Tried(
        place="measured" if seen is None else "modelled",
        ms={case: raced.ms for case, raced in zip(cases, timed, strict=True) if raced.ms is not None},
        by_case=by_case,
        speedup=geometric(list(by_case.values())) if len(by_case) == len(cases) else None,
        why="it left the race early" if all(raced.dropped for raced in timed) else "",
        **known,
    )


def _best(tried: list[Tried], cases: list[str], stayed: list[set[int]]) -> tuple[int, dict[str, int], float]:
    """The best config over all cases, the best of each case, and what the one loses against those, as a share.

    A config that cannot be told from the original does not take its place, nor does one that did not stay in
    the race to its end.
    """

    def gain(number: int, case: str | None) -> float:
        one = tried[number].by_case.get(case) if case is not None else tried[number].speedup
        return one.value if one is not None and one.low > 1 else 1.0

    def first(numbers: set[int], case: str | None = None) -> int:
        timed = sorted(number for number in numbers if tried[number].speedup is not None)
        return max(timed, key=lambda number: gain(number, case), default=ORIGINAL)

    best = first(set().union(*stayed))
    by_case = {case: first(here, case) for case, here in zip(cases, stayed, strict=True)}
    reached = geometric([_over_original(tried[best], case) for case in cases]).value
    possible = geometric([_over_original(tried[by_case[case]], case) for case in cases]).value
    return best, by_case, max(1 - reached / possible, 0.0)


def _fail(tried: list[Tried], number: int, why: str) -> None:
    tried[number] = tried[number].model_copy(update={"place": "failed", "why": why, "speedup": None, "by_case": {}})


def _over_original(one: Tried, case: str) -> Speedup:
    return one.by_case.get(case) or Speedup(value=1.0, low=1.0, high=1.0)


def _rank(one: Tried, best: bool) -> tuple[int, float]:
    if best:
        return 0, 0.0
    order = {"measured": 1, "modelled": 1, "pruned": 2, "failed": 3}
    return order[one.place], -one.speedup.value if one.speedup is not None else one.modelled_ms or 0.0


class _Check:
    """Checks of configs in fresh processes. What is wrong as it is, is wrong with any config: the first config that is
    wrong has the `original` checked, too, which is then what a check says against it."""

    def __init__(self, variants: Sequence[Files], measuring: Runs, tell: Tell) -> None:
        self._variants, self._measuring, self._tell = variants, measuring, tell
        self._sure = False
        self.original: CorrectnessResult | None = None

    async def of(self, number: int) -> CorrectnessResult | None:
        """What a check says against a config; None where it is right. One that the evaluator could not make is made
        once more."""
        found = await self._verdict(number)
        if found.status is Status.VOID:
            found = await self._verdict(number)
        if found.status is Status.PASSED:
            return None
        if not self._sure and found.status is not Status.VOID:
            self._sure = True
            self._tell("a config is wrong: checking the candidate as it is")
            original = await self._verdict(ORIGINAL)
            if original.status not in (Status.PASSED, Status.VOID, Status.TIMEOUT):
                self.original = original
        return found

    async def _verdict(self, number: int) -> CorrectnessResult:
        return await self._measuring.correctness(self._variants[number], new_secret(), LIMIT_S, self._tell)


async def _confirm(wanted: Wanted, variant: Files, measuring: Runs, tell: Tell) -> tuple[Speedup | None, str]:
    """The best config measured against the original once more."""
    tell("confirming the best config: measuring it against the original")
    benchmark = await measuring.benchmark(variant, wanted.files, new_secret(), LIMIT_S, tell)
    if benchmark.same:
        return None, "the best config compiles to the same program as the original"
    if benchmark.speedup is None or benchmark.speedup_low is None or benchmark.speedup_high is None:
        return None, f"the best config could not be measured anew: {benchmark.status}: {benchmark.message}"
    found = Speedup(value=benchmark.speedup, low=benchmark.speedup_low, high=benchmark.speedup_high)
    if found.low <= 1:
        return None, f"measured anew the gain is gone: {found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
    return found, ""
