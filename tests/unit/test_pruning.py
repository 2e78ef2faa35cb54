"""Which configs of a space are not measured, and why."""

from __future__ import annotations

from typing import Any

from tests.unit.test_model import profile
from tilewright.autotune.pruning import pruned, unmodelled
from tilewright.evaluation.results import COMPILING, Status, Surveyed
from tilewright.roofline.model import CallProfile


def surveyed(ms: float, **changes: Any) -> Surveyed:
    return Surveyed(profiles=[CallProfile(launches=[profile(**changes)])], ms=[ms], limits=["spills"])


def left_out(seen: list[Surveyed], alike: list[int] | None = None) -> dict[int, str]:
    return pruned(seen, alike or range(len(seen)), [f"config {number}" for number in range(len(seen))])


def test_what_is_pruned_has_a_reason_and_the_original_never_is() -> None:
    found = left_out([surveyed(9.0), surveyed(1.0), surveyed(2.4), surveyed(3.1, spill_bytes=512, ctas_per_sm=1)])
    assert list(found) == [3]
    assert found[3] == (
        "modelled at 3.1 times the best: mostly spills; spills 512 bytes a thread, one CTA a SM, limited by registers"
    )
    assert left_out([surveyed(9.0), *(surveyed(1.0 + number / 100) for number in range(60))]) == {}
    failed = Surveyed(status=Status.COMPILE_ERROR, message="no")
    assert left_out([surveyed(1.0), failed]) == {}


def test_of_configs_with_the_same_machine_code_one_is_measured() -> None:
    seen = [surveyed(1.0, code="a"), *(surveyed(1.0, code="b") for _ in range(3)), surveyed(1.0), surveyed(1.0)]
    assert left_out(seen, [0, 0, 0, 3, 4, 4]) == {2: "the same machine code as config 1"}
    larger = surveyed(1.0, code="b", shared_bytes=4096)
    assert left_out([*seen[:2], larger], [0, 0, 0]) == {}
    of_the_original = left_out([seen[0], seen[0], surveyed(9.0)], [0, 0, 0])
    assert of_the_original[1] == "the same machine code as config 0"
    assert "9.0 times" in of_the_original[2]


def test_what_was_not_compiled_is_pruned() -> None:
    slow = Surveyed(left="modelled at 7.1 times the best at least: not compiled")
    assert left_out([surveyed(1.0), slow, surveyed(2.4)]) == {1: slow.left}


def test_a_config_that_leaves_work_out_sets_no_bar() -> None:
    wrong = surveyed(0.01).model_copy(update={"short": "its kernels move 1 MB, and 9 MB have to be read"})
    assert left_out([surveyed(1.0), surveyed(0.6), surveyed(0.7), wrong]) == {}
    failed = wrong.short_failed()
    assert failed.status is Status.TAMPERED
    assert "9 MB" in failed.message


def test_what_could_not_be_modelled_is_raced() -> None:
    slow = unmodelled(Surveyed(status=Status.TIMEOUT, message="no answer within 30 s in a sampled call"))
    strange = unmodelled(Surveyed(status=Status.RAISED, message="UnsupportedOperation: f.py:3: no such thing"))
    wrong = Surveyed(status=Status.RAISED, message="ValueError: no")
    assert (slow.status, strange.status, unmodelled(wrong)) == (Status.PASSED, Status.PASSED, wrong)
    assert slow.message == "not modelled: no answer within 30 s in a sampled call"
    compiling = Surveyed(status=Status.TIMEOUT, message=f"no answer within 30 s {COMPILING}")
    assert unmodelled(compiling) == compiling
    assert unmodelled(compiling, original=True).status is Status.PASSED
    good, bad = (Surveyed(profiles=[CallProfile(launches=[])], ms=[ms], limits=["x"]) for ms in (1.0, 9.0))
    assert [*left_out([slow, strange, good, bad])] == [3]
    assert left_out([slow] * 60) == {}
