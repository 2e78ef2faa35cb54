"""What a survey compiled is kept for a race by a process that is not confined: nothing that a candidate wrote may reach
it, nor another candidate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from cutile_cache._cache import cache_entries

from tests.conftest import SCALE_KERNEL
from tilewright.evaluation.results import Shaped, Status
from tilewright.evaluation.snapshot import content_id
from tilewright.repository import Files, Repository
from tilewright.session.runs import Runs
from tilewright.task import Backend

LINKED = """
import os, shutil

def link(into):
    folder = os.path.join(os.environ["HOME"], "compiled")
    if not os.path.islink(folder):
        shutil.rmtree(folder, ignore_errors=True)
        os.symlink(into, folder)

"""
BODY = "    out = torch.empty_like(x)\n"
PLANTED = """
import os, struct
from cutile_cache._cache import cache_store

def plant(victim):
    folder = os.path.join(os.environ["HOME"], "compiled")
    cache_store(folder, "planted", b"a cubin")
    with open(folder + "/cache.db", "rb") as file:
        database = file.read()
    page = struct.unpack(">H", database[16:18])[0]
    magic = bytes.fromhex("d9d505f920a163d7")
    header = magic + struct.pack(">IIIII", 0, 1, len(database) // page, 512, page)
    name = victim.encode()
    tail = struct.pack(">I", 0x40000000 // page + 1) + name + struct.pack(">II", len(name), sum(name)) + magic
    with open(folder + "/cache.db-journal", "wb") as file:
        file.write(header.ljust(512, bytes(1)) + tail)

"""
"""A database with a journal that makes SQLite delete a file of another name when it opens it."""


@pytest.fixture
def repository(make_task: Callable[..., Path]) -> Repository:
    return Repository(make_task())


def surveyed(repository: Repository, *surveys: list[Files], of: Files | None = None) -> tuple[list[str], set[Status]]:
    """After these surveys: the keys by which something is kept of the variant `of`, and how all variants ended."""

    async def work() -> tuple[list[str], set[Status]]:
        runs = Runs(Backend.CPU, "sm_90", repository.files(repository.head()), PurePosixPath("task"))
        ended = set()
        try:
            for variants in surveys:
                found = await runs.survey(variants, Backend.CPU, 120, lambda _: None)
                assert found.tensors == [Shaped(dtype="float32", shape=[2**20])]
                ended |= {one.status for one in found.variants}
            await runs.environment()  # the workers have ended by now
            cache = runs._store.cache(content_id(of)) if of else None
            return [one.key for one in cache_entries(str(cache))] if cache else [], ended
        finally:
            await runs.close()

    return asyncio.run(work())


def kept(repository: Repository, *surveys: list[Files], of: Files) -> list[str]:
    """The keys by which something is kept of one variant after these surveys, which all pass."""
    keys, ended = surveyed(repository, *surveys, of=of)
    assert ended == {Status.PASSED}
    return keys


def test_a_database_that_a_candidate_wrote_is_not_opened(repository: Repository, tmp_path: Path) -> None:
    victim = tmp_path / "precious"
    victim.write_text("x")
    kernel = PLANTED + SCALE_KERNEL.replace(BODY, f"    plant({str(victim)!r})\n{BODY}")
    files: Files = {"task/kernel.py": kernel.encode()}
    kept(repository, [files], [files], of={"task/kernel.py": b"never surveyed"})
    assert victim.exists()


def test_nothing_is_written_through_a_link_that_a_candidate_laid(repository: Repository, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    kernel = LINKED + SCALE_KERNEL.replace(BODY, f"    link({str(outside)!r})\n{BODY}")
    variants: list[Files] = [{"task/kernel.py": f"{kernel}# {number}\n".encode()} for number in range(9)]
    surveyed(repository, variants, variants)
    assert not list(outside.iterdir())


@pytest.mark.slow
def test_no_variant_has_what_another_wrote(repository: Repository) -> None:
    kernel = PLANTED + SCALE_KERNEL.replace(BODY, f"    plant('nothing')\n{BODY}")
    variants: list[Files] = [
        {"task/kernel.py": f"{kernel if number == 1 else SCALE_KERNEL}# {number}\n".encode()}
        for number in range(9)  # more than there are workers
    ]
    keys = kept(repository, variants, of=variants[-1])
    assert len(keys) == 1
    assert "planted" not in keys
