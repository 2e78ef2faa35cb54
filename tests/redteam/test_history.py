"""What an agent may forge of a session's history beside the journal's own file: none of it is believed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import SLOWER_KERNEL
from tests.forging import faster, rechained, records
from tests.stage import judged, play, start
from tilewright.errors import UsageError
from tilewright.session.loop import Loop

MakeTask = Callable[..., Path]


def _rechained(lines: list[str], change: Callable[[dict[str, Any]], None]) -> str:
    """A journal whose records were changed, with every hash made anew."""
    prev, made = "0" * 64, []
    for line in lines:
        body = json.loads(line)
        body.pop("hash")
        change(body["data"])
        body["prev"] = prev
        prev = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        made.append(json.dumps(body | {"hash": prev}, separators=(",", ":")) + "\n")
    return "".join(made)


def _favourable(data: dict[str, Any]) -> None:
    if data["kind"] == "measured" and data.get("incumbent"):
        data["first"] |= {"speedup": 10.0, "speedup_low": 9.0, "speedup_high": 11.0}


def test_a_journal_with_new_hashes_is_not_believed(make_task: MakeTask) -> None:
    """Neither while the server runs nor after a restart."""
    root = make_task()

    async def begin(loop: Loop) -> None:
        await start(loop)
        await judged(loop, SLOWER_KERNEL)
        journal = journal_of(root)
        journal.write_text(_rechained(journal.read_text().splitlines(), _favourable))
        with pytest.raises(UsageError):
            loop.checkpoint()

    async def goes_on(loop: Loop) -> None:
        with pytest.raises(UsageError):
            loop.checkpoint()

    play(root, begin)
    play(root, goes_on)


@pytest.mark.slow
def test_another_folder_in_the_place_of_the_sessions_is_not_believed(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        await start(loop)
        await judged(loop, SLOWER_KERNEL)
        found = records(root)
        faster(found)
        for pointer in ("../outside", "forged"):
            other = root / "sandbox" / pointer
            other.mkdir(parents=True)
            (other / "journal.jsonl").write_text(rechained(found))
            (root / "sandbox" / "current").write_text(pointer + "\n")
            with pytest.raises(UsageError):
                loop.checkpoint()

    play(root, scene)
