"""Compilations on disk: by content, within a cap, and never more than what can be read."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from pathlib import Path

import pytest
import torch

from tests.unit import kernels
from tilewright.compiler import assembling
from tilewright.compiler.assembling import Lowered, assemble
from tilewright.compiler.cutile import lower
from tilewright.compiler.signature import signature_of
from tilewright.compiler.store import CompilationStore, cache_folder


def lowered(root: Path, arch: str = "sm_80") -> Lowered:
    """The `casts` kernel, from a copy of its source under `root`."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "copied.py").write_text(Path(kernels.__file__).read_text())
    spec = importlib.util.spec_from_file_location("copied", root / "copied.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = torch.empty(4096)
    return lower(module.casts, signature_of(module.casts, (x, x, 32)), arch, root)


def test_the_same_source_in_another_folder_has_the_same_key(tmp_path: Path) -> None:
    one, other = lowered(tmp_path / "aaaa"), lowered(tmp_path / "bbbb")
    assert one.key == other.key
    assert str(tmp_path).encode() not in one.bytecode
    made = assemble(one, timeout_s=60, folder=tmp_path)
    assert made.mix[-1].file == "copied.py"
    assert str(tmp_path) not in made.model_dump_json()
    assert lowered(tmp_path / "aaaa", "sm_90").key != one.key


@pytest.mark.parametrize(
    "change",
    [{"opt_level": 2}, {"cutile_ir": "other"}, {"bytecode": b"x"}, {"hints": {"occupancy": 2}}, {"kernel": "k"}],
)
def test_whatever_an_entry_is_made_of_is_in_its_key(change: dict[str, object]) -> None:
    plain = Lowered("kernel", "sm_90", 3, "symbol", {}, "ir", b"bytecode")
    assert dataclasses.replace(plain, **change).key != plain.key  # type: ignore[arg-type]
    assert dataclasses.replace(plain).key == plain.key


def test_an_entry_that_other_code_has_read_has_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Lowered("kernel", "sm_90", 3, "symbol", {}, "ir", b"bytecode")
    before = plain.key
    monkeypatch.setattr(assembling, "form", lambda: "another")
    assert plain.key != before


def test_tritons_kernels_have_keys_of_their_own() -> None:
    plain = Lowered("kernel", "sm_90", 3, "symbol", {}, "", b"module {}")
    triton = dataclasses.replace(plain, frontend="triton", options={"num_warps": 4})
    assert triton.key != plain.key
    assert dataclasses.replace(triton, options={"num_warps": 8}).key != triton.key


def test_an_entry_comes_back_as_it_went(tmp_path: Path) -> None:
    store = CompilationStore(tmp_path / "store")
    source = lowered(tmp_path / "source")
    assert store.load(source.key) is None
    made = assemble(source, timeout_s=60, folder=tmp_path)
    store.save(source.key, made)
    assert store.load(source.key) == made
    (entry,) = (tmp_path / "store").iterdir()
    entry.write_bytes(b"cut off")
    assert store.load(source.key) is None
    with pytest.raises(ValueError, match="no key"):
        store.load("../../etc/passwd")


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    made = Lowered("kernel", "sm_90", 3).failed("nothing")
    keys = [f"{number:064x}" for number in range(4)]
    probe = CompilationStore(tmp_path / "probe")
    probe.save(keys[0], made)
    size = next((tmp_path / "probe").iterdir()).stat().st_size
    store = CompilationStore(tmp_path / "store", cap_bytes=3 * size)
    for age, key in enumerate(keys[:3]):
        store.save(key, made)
        os.utime(tmp_path / "store" / f"{key}.json.gz", (age, age))
    assert store.load(keys[0]) is not None  # used now
    store.save(keys[3], made)
    assert [store.load(key) is not None for key in keys] == [True, False, True, True]
    freed = store.clean()
    assert freed.entries == 3
    assert freed.bytes == 3 * size
    assert not (tmp_path / "store").exists()
    assert store.clean().entries == 0


def test_a_folder_that_cannot_be_written_only_costs_the_entry(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = CompilationStore(tmp_path / "file" / "store")
    store.save("0" * 64, Lowered("kernel", "sm_90", 3).failed("nothing"))
    assert store.load("0" * 64) is None


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TILEWRIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "tilewright" / "compilations"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache" / "tilewright" / "compilations"
