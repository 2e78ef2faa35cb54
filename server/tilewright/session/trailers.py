"""What a session's commits say of it: a second, content-addressed note of where its journal stood."""

from __future__ import annotations

from dataclasses import dataclass

SESSION, ITERATION = "Tilewright-Session", "Tilewright-Iteration"
CANDIDATE, JOURNAL = "Tilewright-Candidate", "Tilewright-Journal"


@dataclass(frozen=True)
class Trailers:
    """The trailers of a commit; `seq` is that of the journal's last record when it was made, -1 where none is named."""

    session: str = ""
    iteration: str = ""
    candidate: str = ""
    seq: int = -1
    hash: str = ""


def compose(title: str, session: str, iteration: int, candidate: str, hashes: list[str]) -> str:
    """The message of a commit that is made when the journal's records have these hashes."""
    lines = [f"{SESSION}: {session}", f"{ITERATION}: {iteration}"]
    lines += [f"{CANDIDATE}: {candidate}"] if candidate else []
    return "\n".join([title, "", *lines, f"{JOURNAL}: {len(hashes) - 1} {hashes[-1]}", ""])


def parse(message: str) -> Trailers:
    """The trailers of a commit's message; empty ones where it has none."""
    found = {}
    for line in message.rstrip().rpartition("\n\n")[2].splitlines():
        name, _, value = line.partition(": ")
        found[name] = value.strip()
    seq, _, digest = found.get(JOURNAL, "").partition(" ")
    known = seq.isdecimal() and bool(digest)
    return Trailers(
        session=found.get(SESSION, ""),
        iteration=found.get(ITERATION, ""),
        candidate=found.get(CANDIDATE, ""),
        seq=int(seq) if known else -1,
        hash=digest if known else "",
    )
