"""What the model says of configs, where there is no GPU to race them on."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.evaluation.results import ORIGINAL, Raced, Status, Surveyed, geometric_mean
from tilewright.roofline.model import LaunchProfile


def longest(one: Surveyed) -> LaunchProfile | None:
    """The launch of a variant's first case that moves or computes most."""
    launches = one.profiles[0].launches if one.profiles else []
    return max(
        launches,
        key=lambda launch: (sum(launch.matrix_flops.values()) * launch.blocks, launch.dram_bytes),
        default=None,
    )


def ms(one: Surveyed) -> float | None:
    """The model's geometric mean over the cases, in ms."""
    return geometric_mean(one.ms) if one.status is Status.PASSED and one.ms and min(one.ms) > 0 else None


def raced(seen: Sequence[Surveyed], cases: int) -> list[list[Raced]]:
    """Each variant's modelled figures beside the first's, by case, in the form of a race's. One that leaves work out
    has failed. Of those that launch the same machine code in the same way, one counts."""
    found: list[list[Raced]] = []
    firsts: dict[str, int] = {}
    for number, one in enumerate(seen):
        figures = one.short_failed().against(seen[ORIGINAL], cases)
        launches = [launch for profile in one.profiles for launch in profile.launches]
        if launches and all(launch.resources.code for launch in launches):
            first = firsts.setdefault(repr(one.profiles), number)
            if first != number:
                figures = [case.model_copy(update={"same": first}) for case in figures]
        found.append(figures)
    return found
