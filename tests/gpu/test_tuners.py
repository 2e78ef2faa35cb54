"""The configs of a tuner on a GPU, which takes the fastest: the others have to be right as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench import Bench, opened
from tests.conftest import SCALE_TOML
from tests.integration.test_triton_frontend import KERNEL, TOML
from tests.integration.test_tuners import ADDING, HALF, ONE_WRONG, RIGHT, SEARCHED, SUMMED, WRONG
from tilewright.evaluation.results import Status
from tilewright.task import Backend

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    yield from opened(tmp_path_factory, Backend.CUDA, TOML, KERNEL)


@pytest.fixture(scope="module")
def cutile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    yield from opened(tmp_path_factory, Backend.CUDA, SCALE_TOML)


def test_a_wrong_config_is_found_whichever_the_tuner_takes(triton: Bench, cutile: Bench) -> None:
    result = triton.check(HALF.replace("SECOND", WRONG))
    assert result.status.is_incorrect, result.message
    result = cutile.check(ONE_WRONG.replace("OUT", "out"))
    assert result.status is Status.WRONG_VALUES, result.message
    for bench, source in ((triton, HALF.replace("SECOND", RIGHT)), (cutile, SEARCHED.replace("OUT", "out"))):
        result = bench.check(source)
        assert result.passed, result.message
        assert not result.notes


def test_a_tuner_that_spoils_its_arguments_is_wrong(triton: Bench, cutile: Bench) -> None:
    triton.assert_fails(ADDING, Status.WRONG_VALUES, "")
    cutile.assert_fails(SUMMED.replace("OUT", "out"), Status.WRONG_VALUES, "")
    for bench, source in (
        (triton, ADDING.replace("key=['n']", "key=['n'], reset_to_zero=['out']")),
        (triton, ADDING.replace("key=['n']", "key=['n'], restore_value=['out']")),
        (cutile, SUMMED.replace("OUT", "out.clone()")),
    ):
        result = bench.check(source)
        assert result.passed, result.message
