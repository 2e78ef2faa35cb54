"""The digest is the same on the GPU, whose arithmetic a C compiler runs here, and in numpy."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tilewright.programs import digests
from tilewright.programs.digests import digest, key_of, widened
from tilewright.referee import digests as on_gpu
from tilewright.referee.digests import digest_on
from tilewright.replay.build import FOLDER, PTX, built, sources_hash

PROGRAM = """
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include "mix.h"
int main(void) {
    uint64_t key, word, sum = 0, place = 0;
    if (scanf("%" SCNx64, &key) != 1) return 1;
    while (scanf("%" SCNx64, &word) == 1) sum += tilewright_term(word, key, place++);
    printf("%" PRIx64, sum);
}
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_the_digest_is_that_of_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "digest.c").write_text(PROGRAM)
    subprocess.run(["cc", f"-I{FOLDER}", "-o", tmp_path / "digest", tmp_path / "digest.c"], check=True)
    source = random.Random(5)
    for words in (0, 1, 7, 1000):
        data, key = source.randbytes(8 * words), source.getrandbits(64)
        listed = [int.from_bytes(data[n : n + 8], "little") for n in range(0, len(data), 8)]
        given = "\n".join(f"{number:x}" for number in (key_of(key, 0), *listed))
        done = subprocess.run([tmp_path / "digest"], input=given, capture_output=True, text=True, check=True)
        assert digest([data], key) == int(done.stdout, 16) | 1


def test_the_digest_is_the_same_in_torch() -> None:
    source = random.Random(7)
    for sizes in ((0,), (8,), (8000, 0, 80), (800_000,)):
        data, key = [memoryview(bytearray(source.randbytes(size))) for size in sizes], source.getrandbits(64)
        assert digest_on("cpu", data, key) == digest(data, key)


def test_the_digest_is_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    data = [memoryview(bytearray(random.Random(8).randbytes(8000)))]
    monkeypatch.setattr(digests, "CHUNK", 7)
    monkeypatch.setattr(on_gpu, "PIECE_BYTES", 88)
    assert digest_on("cpu", data, 5) == digest(data, 5)
    monkeypatch.undo()
    assert digest_on("cpu", data, 5) == digest(data, 5)


def test_a_digest_tells_outputs_apart() -> None:
    source = random.Random(6)
    data = [source.randbytes(800), source.randbytes(80)]
    swapped = [data[0][8:16] + data[0][:8] + data[0][16:], data[1]]
    key = source.getrandbits(64)
    found = {digest(one, key) for one in (data, swapped, data[::-1], [data[0]], [data[0], data[0][:80]])}
    assert len(found) == 5
    assert digest(data, key) != digest(data, key + 1)


def test_outputs_are_widened_to_words() -> None:
    assert widened(1024, 16) == (1024, 16)
    assert widened(1026, 4) == (1024, 8)
    assert widened(1030, 4) == (1024, 16)
    assert widened(1024, 0) == (1024, 0)


def test_the_kernels_were_built_from_their_sources() -> None:
    assert PTX.read_text().startswith(f"// sources {sources_hash()}\n"), "run `make kernels`"


@pytest.mark.skipif(not shutil.which("c++"), reason="nvcc needs a C++ compiler")
def test_the_kernels_are_what_is_built() -> None:
    assert built() == PTX.read_text()
