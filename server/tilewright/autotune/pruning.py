"""Which configs are not worth a measurement, by what they compile to and what the model says; each with its reason."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.resources import Resources
from tilewright.evaluation.results import COMPILING, ORIGINAL, UNREAD, Status, Surveyed, geometric_mean
from tilewright.roofline.model import LaunchProfile

HOPELESS = 2.5
"""Times the best modelled latency from which a config is not measured. In the five sweeps that the model was fitted to,
that leaves out every config slower than 3 times the best, and none that took less than twice the best's time."""
SAME = "the same machine code as "
"""How the reason begins why a config is left out of which another's measurement says all."""


def longest(one: Surveyed) -> LaunchProfile | None:
    """The launch of a variant's first case that moves or computes most."""
    launches = one.profiles[0].launches if one.profiles else []
    return max(
        launches,
        key=lambda launch: (sum(launch.matrix_flops.values()) * launch.blocks, launch.dram_bytes),
        default=None,
    )


def modelled_ms(one: Surveyed) -> float | None:
    """The model's geometric mean over the cases, in ms."""
    return geometric_mean(one.ms) if one.status is Status.PASSED and one.ms and min(one.ms) > 0 else None


def unmodelled(one: Surveyed, original: bool = False) -> Surveyed:
    """A variant that failed, as one to be measured where all that failed is the model: it took too long, the
    interpreter does not know one of the kernel's operations, or its machine code could not be read. One whose compile
    took too long fails, but for the original: a race would have to compile it again."""
    unknown = one.status is Status.RAISED and one.message.startswith("UnsupportedOperation")
    unread = one.status is Status.CRASHED and one.message.startswith(UNREAD)
    slow = one.status is Status.TIMEOUT and (original or COMPILING not in one.message)
    if slow or unknown or unread:
        return Surveyed(message=f"not modelled: {one.message.splitlines()[0]}")
    return one


def twins(surveyed: Sequence[Surveyed], alike: Sequence[int]) -> dict[int, int]:
    """Configs whose kernels are another's, by number: those that differ in hints alone (`alike` has the number of the
    first of these for each) and compile to the same machine code, which occupies the same."""
    found: dict[int, int] = {}
    seen: dict[tuple[int, str], int] = {}
    for number, one in enumerate(surveyed):
        occupied = [launch.resources for profile in one.profiles for launch in profile.launches]
        if occupied and all(resources.code for resources in occupied):
            first = seen.setdefault((alike[number], repr(occupied)), number)
            if first != number:
                found[number] = first
    return found


def pruned(surveyed: Sequence[Surveyed], alike: Sequence[int], labels: Sequence[str]) -> dict[int, str]:
    """Configs that are left out, by number, with the reason; never the original, nor one that could not be modelled.
    `labels` name the configs; `alike` is as for `twins`."""
    same = twins(surveyed, alike)
    reasons = {number: one.left for number, one in enumerate(surveyed) if one.left}
    reasons |= {number: f"{SAME}{labels[first]}" for number, first in same.items()}
    figures = {
        number: ms
        for number, one in enumerate(surveyed)
        if number not in reasons and (ms := modelled_ms(one)) is not None
    }
    whole = [ms for number, ms in figures.items() if not surveyed[number].short]
    best = min(whole, default=min(figures.values(), default=0.0))  # one that leaves work out sets no bar
    hopeless = {number: ms / best for number, ms in figures.items() if ms > HOPELESS * best}
    reasons |= {number: _hopeless(surveyed[number], times) for number, times in hopeless.items()}
    reasons.pop(ORIGINAL, None)
    return reasons


def _hopeless(one: Surveyed, times: float) -> str:
    limit = one.limits[0] if one.limits else ""
    launch = longest(one)
    about = _trouble(launch.resources) if launch is not None else ""
    return f"modelled at {times:.1f} times the best: mostly {limit}{f'; {about}' if about else ''}"


def _trouble(resources: Resources) -> str:
    found = []
    if resources.spill_bytes:
        found.append(f"spills {resources.spill_bytes} bytes a thread")
    if resources.ctas_per_sm is not None and resources.ctas_per_sm <= 1:
        found.append(f"one CTA a SM, limited by {resources.limited_by}")
    return ", ".join(found)
