"""From a session to a pull request: a clean branch of what was kept, and the commands that come then."""

from __future__ import annotations

import shlex

from tilewright.errors import UsageError
from tilewright.policy import product
from tilewright.repository import Repository
from tilewright.session.checkout import Checkout
from tilewright.session.show import gain
from tilewright.session.state import State

BODY = "sandbox/pull-request.md"
"""Where the commands put a pull request's body: git does not see it there."""
FROM_DIRTY = "edits that the session began with"


def finish(checkout: Checkout, session: str = "", branch: str = "", squash: bool = False) -> list[str]:
    """Make a branch of a session's kept commits on the commit that the session began from, by default the current one.
    Gives what to tell the user, a line each. Neither the working tree nor what is checked out changes. Raises
    `UsageError`."""
    repository = checkout.repository
    folder = checkout.session_folder(session)
    journal = checkout.journal(folder)
    checkout.need_anchors(folder.name, journal.hashes)
    state = State.of(journal.entries)
    started = state.started
    if state.attempt.is_kept:
        raise UsageError(
            f"iteration {state.iteration} is kept and has no row yet; call append_result, which names its commit"
        )
    if not state.kept:
        raise UsageError(f"session {started.session} kept no edit, so there is nothing to finish")
    commits = [started.base, started.baseline, *(keep.commit for keep in state.kept)]
    if gone := [commit for commit in commits if repository.resolve(commit) is None]:
        raise UsageError(
            f"commit {gone[0][:12]} of the session is not in this repository; `git fetch` it from a copy, or from the "
            "bundle in an exported session"
        )
    name = branch or f"{started.branch}-clean"
    tip = _squashed(repository, state) if squash else _one_each(repository, state)
    count = 1 if squash else len(repository.since(started.base, tip))
    repository.name_branch(name, tip)
    what = f"{count} commit{'s' if count > 1 else ''} on {started.base[:12]}"
    lines = [f"branch {name} has {what}: {gain(state)}"]
    lines += [
        f"  {repository.message(commit).splitlines()[0]}" for commit in reversed(repository.since(started.base, tip))
    ]
    of = f" {session}" if session else ""
    remote = repository.remote()
    if not remote:
        lines.append("this repository has no remote: `git remote add origin URL` comes first")
    return [
        *lines,
        "next:",
        f"  tilewright report{of} --pr > {BODY}",
        f"  git push -u {remote or 'origin'} {name}",
        f"  gh pr create --head {name} --title {shlex.quote(_title(repository, state))} --body-file {BODY}",
    ]


def _one_each(repository: Repository, state: State) -> str:
    """A commit for each keep. Uncommitted edits that were taken into the baseline have one of their own below."""
    started, tip = state.started, state.started.base
    if started.baseline != tip:
        tip = repository.recommit(started.baseline, tip, f"{started.task_name}: {FROM_DIRTY}\n")
    for keep in state.kept:
        tip = repository.recommit(keep.commit, tip, repository.message(keep.commit))
    return tip


def _squashed(repository: Repository, state: State) -> str:
    started, last = state.started, state.incumbent_commit
    subjects = [repository.message(keep.commit).splitlines()[0] for keep in state.kept]
    parts = [subject.removeprefix(f"{started.task_name}: ") for subject in subjects]
    parts += [FROM_DIRTY] if started.baseline != started.base else []
    text = "\n".join([_title(repository, state), "", *(f"- {part}" for part in parts)])
    return repository.recommit(last, started.base, f"{text}\n")


def _title(repository: Repository, state: State) -> str:
    """The subject of all that was kept: of one keep its own."""
    if len(state.kept) == 1:
        return repository.message(state.incumbent_commit).splitlines()[0]
    mark = "~" if state.started.modelled else ""
    return f"{state.started.task_name}: {mark}{product(state.keeps).speedup:.2f}x as fast by {len(state.kept)} edits"
