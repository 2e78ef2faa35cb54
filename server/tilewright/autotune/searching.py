"""The search: space, survey by the compiler and the model, race on the device, confirmation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tilewright.autotune import pruning
from tilewright.autotune.report import SearchResult, Speedup, Tried, geometric, label
from tilewright.autotune.space import OPEN, Kind, declared, kind_of, proposed
from tilewright.evaluation.results import (
    ORIGINAL,
    CorrectnessResult,
    Environment,
    Prior,
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
Tell = Callable[[str], None]
OneT = TypeVar("OneT")
OtherT = TypeVar("OtherT")


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
    configs = space.configs if space is not None else [{}]  # all at once where it is known which
    variants, alike = _variants(wanted, knobs, configs), _alike(knobs, configs)
    if wanted.unmodelled:
        environment, first = await measuring.environment(), _unseen(wanted, variants, backend)
    else:
        environment, first = await _begun(modelling, measuring, variants, alike, backend, tell)
    base = _result(wanted, backend, environment)
    arch = environment.arch
    surveyed = _to_race(first.variants, backend)
    if first.status is not Status.PASSED or surveyed[ORIGINAL].status is not Status.PASSED:
        return _ended(base, first.status, first.message, first.variants)
    original = surveyed[ORIGINAL]
    if space is None:
        kind = wanted.kind or _kind(original, first.tensors, arch)
        space = proposed(knobs, kind, arch)
        variants, alike = _variants(wanted, knobs, space.configs), _alike(knobs, space.configs)
        if others := variants[1:]:
            later = _alike(knobs, space.configs[1:])
            surveying = modelling.survey(others, backend, LIMIT_S, tell, alike=later, hopeless=pruning.HOPELESS)
            _, rest = await _side_by_side(_ready(measuring, modelling, len(variants)), surveying)
            if rest.status is not Status.PASSED:
                return _ended(base, rest.status, rest.message, [])
            surveyed = _to_race([original, *rest.variants], backend)
    cases = [case_label(case) for case in first.cases]
    short = backend is Backend.CPU  # on a GPU the referee's floor and its comparison of outputs decide
    seen = [one.short_failed() if short else one for one in surveyed]
    out = pruning.pruned(seen, alike, [label(config) for config in space.configs])
    running = [number for number, one in enumerate(seen) if one.status is Status.PASSED and number not in out]
    if backend is Backend.CUDA:
        runners = [variants[number] for number in running]
        if not wanted.unmodelled:
            await measuring.take_over(modelling, runners)
        settings = _settings(knobs, space.configs)
        priors = [Prior(ms=pruning.modelled_ms(seen[number]), settings=settings[number]) for number in running]
        raced = await measuring.race(runners, new_secret(), LIMIT_S, tell, priors)
        if raced.status is not Status.PASSED:
            return _ended(base, raced.status, raced.message, [])
        timed = dict(zip(running, raced.configs, strict=True))
    else:
        timed = {number: seen[number].against(seen[ORIGINAL], len(cases)) for number in running}
    tried = [
        _tried(space.configs[number], one, cases, out.get(number, ""), timed.get(number), backend)
        for number, one in enumerate(seen)
    ]
    last = [{number for number, raced in timed.items() if not raced[place].left} for place in range(len(cases))]
    check = _Check(variants, measuring, tell)
    confirmed, words = None, "no config is better than the original by more than can be measured"
    for _ in range(CONFIRMED_AT_MOST):
        best, by_case, loss = _best(tried, cases, last)
        if best == ORIGINAL:
            break
        tell("confirming the best config: checking it")
        wrong = await check.of(best)
        if check.original is not None:
            return _ended(base, check.original.status, f"{AS_IT_IS}: {check.original.message}", [])
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
            return _ended(base, check.original.status, f"{AS_IT_IS}: {check.original.message}", [])
        if wrong is None:
            checked.add(number)
        else:
            _fail(tried, number, f"{wrong.status}: {wrong.message}")
            _, by_case, loss = _best(tried, cases, last)
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
            "calls": dict(zip(cases, first.calls, strict=True)),
            "launched": sorted({one.kernel for seen in surveyed for call in seen.profiles for one in call.launches}),
            "confirmed": confirmed,
            "confirmation": words,
            "seconds": time.monotonic() - started,
        }
    )


async def _begun(
    modelling: Runs, measuring: Runs, variants: list[Files], alike: list[int], backend: Backend, tell: Tell
) -> tuple[Environment, SurveyResult]:
    """Where it is measured, and the survey of `variants`, at the same time where two referees do that. Raises
    `UsageError`; the other is then given up."""
    environment = await measuring.environment() if modelling is measuring else None
    surveying = modelling.survey(variants, backend, LIMIT_S, tell, alike=alike, hopeless=pruning.HOPELESS)
    if environment is not None:
        return environment, await surveying
    tell("starting: what compiles and models, and what measures")

    async def prepared() -> Environment:
        found = await measuring.environment()
        await _ready(measuring, modelling, len(variants))
        return found

    return await _side_by_side(prepared(), surveying)


async def _ready(measuring: Runs, modelling: Runs, count: int) -> None:
    """Let what measures get ready for a race of `count` configs, if that is not what models them."""
    if measuring is not modelling and count > 1:
        await measuring.ready(count)


async def _side_by_side(one: Coroutine[Any, Any, OneT], other: Coroutine[Any, Any, OtherT]) -> tuple[OneT, OtherT]:
    """Both results; where one fails, the other is given up."""
    first, second = asyncio.create_task(one), asyncio.create_task(other)
    try:
        return await asyncio.gather(first, second)
    finally:
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)


def _unseen(wanted: Wanted, variants: list[Files], backend: Backend) -> SurveyResult:
    """What a survey says where none can be made: every variant is for the race."""
    cases = wanted.found.task.benchmark_cases(backend)
    seen = [Surveyed() for _ in variants]
    return SurveyResult(status=Status.PASSED, cases=cases, calls=[""] * len(cases), variants=seen)


def _to_race(surveyed: list[Surveyed], backend: Backend) -> list[Surveyed]:
    """On a GPU, what the model cannot say of a config is for the race to show. The first is the original."""
    if backend is Backend.CPU:
        return surveyed
    return [pruning.unmodelled(one, original=number == ORIGINAL) for number, one in enumerate(surveyed)]


def _variants(wanted: Wanted, knobs: Knobs, configs: Sequence[Mapping[str, Value]]) -> list[Files]:
    """The files of each config, the original first. Raises `SpaceError` where their copies are too large."""
    found = [wanted.files | knobs.variant(config) for config in configs]
    if (size := len(found) * sum(map(len, wanted.found.committed.values()))) > COPIES_LIMIT:
        raise SpaceError(
            f"each config has a copy of the tracked files, which is {size >> 20} MiB for {len(found)} of them: give "
            "fewer values, or put the task into a smaller repository or a git worktree with sparse checkout"
        )
    return found


def _settings(knobs: Knobs, configs: Sequence[Mapping[str, Value]]) -> list[dict[str, str]]:
    """The value of every knob of the space in each config, as in its source; of a hint that it leaves open, `OPEN`."""
    names = {name for config in configs for name in config}
    original = dict.fromkeys(names, OPEN) | {name: repr(value) for name, value in knobs.original(names).items()}
    return [original | {name: repr(value) for name, value in config.items()} for config in configs]


def _alike(knobs: Knobs, configs: Sequence[Mapping[str, Value]]) -> list[int]:
    """For each config the number of the first that differs from it in nothing but hints to the compiler."""
    firsts: dict[str, int] = {}
    found = []
    for number, settings in enumerate(_settings(knobs, configs)):
        plain = sorted((name, value) for name, value in settings.items() if not knobs.is_hint(name))
        found.append(firsts.setdefault(repr(plain), number))
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


def _ended(base: SearchResult, status: Status, message: str, surveyed: list[Surveyed]) -> SearchResult:
    """A search whose original config fails."""
    if status is Status.PASSED and surveyed:
        status, message = surveyed[ORIGINAL].status, f"{AS_IT_IS}: {surveyed[ORIGINAL].message}"
    return base.model_copy(update={"status": status, "message": message})


def _tried(
    config: dict[str, Value], one: Surveyed, cases: list[str], reason: str, timed: list[Raced] | None, backend: Backend
) -> Tried:
    launch = pruning.longest(one)
    known = {
        "config": config,
        "resources": launch.resources if launch is not None else None,
        "modelled_ms": pruning.modelled_ms(one),
    }
    if one.status is not Status.PASSED:
        return Tried(place="failed", why=f"{one.status}: {one.message}"[:500], **known)
    if timed is None:
        return Tried(place="pruned", why=reason, **known)
    if all(raced.left and raced.ms is None for raced in timed):  # others were more promising
        return Tried(place="pruned", why="; ".join(filter(None, [one.message[:500], timed[0].message])), **known)
    if failed := next((raced for raced in timed if raced.status is not Status.PASSED), None):
        return Tried(place="failed", why=f"{failed.status}: {failed.message}"[:500], **known)
    by_case = {
        case: Speedup(value=raced.speedup, low=raced.low or raced.speedup, high=raced.high or raced.speedup)
        for case, raced in zip(cases, timed, strict=True)
        if raced.speedup is not None
    }
    return Tried(
        place="modelled" if backend is Backend.CPU else "measured",
        ms={case: raced.ms for case, raced in zip(cases, timed, strict=True) if raced.ms is not None},
        by_case=by_case,
        speedup=geometric(list(by_case.values())) if len(by_case) == len(cases) else None,
        why=one.message[:500] or ("it was not in the last heat" if all(raced.left for raced in timed) else ""),
        **known,
    )


def _best(tried: list[Tried], cases: list[str], last: list[set[int]]) -> tuple[int, dict[str, int], float]:
    """The best config over all cases, the best of each case, and what the one loses against those, as a share.

    A config that cannot be told from the original does not take its place, nor does one that was not in the `last` heat
    of any case, or of the case: it has been measured less.
    """

    def gain(number: int, case: str | None) -> float:
        one = tried[number].by_case.get(case) if case is not None else tried[number].speedup
        return one.value if one is not None and one.low > 1 else 1.0

    def first(numbers: set[int], case: str | None = None) -> int:
        timed = sorted(number for number in numbers if tried[number].speedup is not None)
        return max(timed, key=lambda number: gain(number, case), default=ORIGINAL)

    best = first(set().union(*last))
    by_case = {case: first(here, case) for case, here in zip(cases, last, strict=True)}
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
