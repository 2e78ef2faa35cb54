"""What a session leaves: what was kept, what it gained, where it lies, and what its user can do with it."""

from __future__ import annotations

from tilewright.policy import product, ratio_of
from tilewright.session.state import Attempt, State

FINISH = (
    "`tilewright finish` (a clean branch of what was kept), `tilewright report --pr` (the body of its pull request)"
)
RESUME = "start_session with resume=true takes this session up again"


def gain(state: State) -> str:
    """How much faster what was kept last is than the baseline, with the interval."""
    mark = "~" if state.started.modelled else ""
    direct = ratio_of(state.ended.direct) if state.ended is not None and state.ended.direct is not None else None
    ratio = direct or product(state.keeps)
    count = len(state.kept)
    how = "last program against first" if direct else f"product of {count} keeps" if count > 1 else "1 keep"
    return f"{mark}{ratio.speedup:.4f}x the baseline's speed ({mark}{ratio.low:.4f} to {mark}{ratio.high:.4f}; {how})"


def left_behind(state: State) -> list[str]:
    """What was kept, the gain, the branch, and what to do next: a line each."""
    started, tried = state.started, max(len(state.rows) - 1, 0)
    names = [f"{state.rows[keep.iteration].optimization} (iteration {keep.iteration})" for keep in _with_rows(state)]
    if not names:
        kept = [f"nothing was kept of {tried} iteration{'' if tried == 1 else 's'}"]
    else:
        kept = [f"kept {len(names)} of {tried}: {', '.join(names)}", f"gain: {gain(state)}"]
    return [*kept, f"branch: {started.branch}", f"next: {next_of(state)}"]


def next_of(state: State) -> str:
    """What a user can do with a session that has ended."""
    return "; ".join([*([FINISH] if _with_rows(state) else []), RESUME])


def _with_rows(state: State) -> list[Attempt]:
    return [keep for keep in state.kept if keep.iteration < len(state.rows)]
