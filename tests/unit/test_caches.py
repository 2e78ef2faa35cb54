"""What compilers made, carried between workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewright.evaluation.caches import copy_cache, triton_cache


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """What a worker compiled, and where it is kept."""
    made, kept = tmp_path / "worker-1" / "compiled", tmp_path / "session's \u00e9" / "cache"
    made.mkdir(parents=True)
    return made, kept


def test_carries_databases_and_folders(folders: tuple[Path, Path]) -> None:
    made, kept = folders
    (made / "cache.db").write_bytes(b"a database")
    (made / "triton" / "KEY").mkdir(parents=True)
    (made / "triton" / "KEY" / "scale.cubin").write_bytes(b"\x7fELF")
    copy_cache(made, kept)
    assert (kept / "cache.db").read_bytes() == b"a database"
    assert (kept / "triton" / "KEY" / "scale.cubin").read_bytes() == b"\x7fELF"


def test_nothing_there_makes_nothing(tmp_path: Path) -> None:
    copy_cache(tmp_path / "never", tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_follows_no_link(folders: tuple[Path, Path], tmp_path: Path) -> None:
    made, kept = folders
    secret = tmp_path / "secrets"
    secret.mkdir()
    (secret / "seed").write_text("17")
    (made / "cache.db").symlink_to(secret / "seed")
    (made / "triton").symlink_to(secret)
    os.mkfifo(made / "cache.db-wal")
    copy_cache(made, kept)
    assert not kept.exists()
    linked = tmp_path / "worker-2" / "compiled"
    linked.parent.mkdir()
    linked.symlink_to(secret)
    copy_cache(linked, kept)
    assert not kept.exists()


def test_what_a_tuner_chose_and_what_cannot_be_read_is_left(folders: tuple[Path, Path]) -> None:
    made, kept = folders
    (made / "scale.cubin").write_bytes(b"code")
    (made / "scale.autotune.json").write_text("{}")
    copy_cache(made, kept)
    assert [file.name for file in kept.iterdir()] == ["scale.cubin"]
    (made / "below").mkdir(mode=0)
    made.chmod(0)
    try:
        copy_cache(made, kept)
    finally:
        made.chmod(0o700)


def test_triton_finds_what_another_worker_compiled(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = pytest.importorskip("triton.runtime.cache")
    made, kept = folders
    monkeypatch.setenv("TRITON_CACHE_DIR", str(triton_cache(made.parent)))
    first = cache.FileCacheManager("KEY")
    first.put_group("scale.json", {"scale.ptx": first.put("ret;", "scale.ptx", binary=False)})
    copy_cache(made, kept)
    second = tmp_path / "worker-2"
    copy_cache(kept, second / "compiled")
    made.rename(made.with_name("gone"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(triton_cache(second)))
    found = cache.FileCacheManager("KEY").get_group("scale.json")
    assert found is not None
    assert Path(found["scale.ptx"]).read_text() == "ret;"
    assert Path(found["scale.ptx"]).is_relative_to(second)
