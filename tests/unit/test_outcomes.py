"""How tests ended: what passes, what does not, and what a candidate cannot make pass by leaving tests out."""

from __future__ import annotations

from xml.sax.saxutils import escape

import pytest

from tilewright.evaluation.results import CorrectnessResult, Status
from tilewright.harness.commands import Ran
from tilewright.harness.outcomes import judge, read_report


def ran(status: int | None = 0, ended: str = "", timed_out: bool = False) -> Ran:
    return Ran(status, ended or f"exited with status {status}", timed_out, "printed\n", "complained\n", 1.0)


def report(**tests: str) -> str:
    inner = {
        "pass": "",
        "skip": '<skipped type="pytest.skip" message="Backend triton is not available">where</skipped>',
        "fail": '<failure message="AssertionError: off by 3">def f():\n&gt;   assert_close(out, ref)\n'
        "E   AssertionError: off by 3\nE   Mismatched elements: 7</failure>",
        "error": '<error message="collection failure">E   ModuleNotFoundError: x</error>',
    }
    cases = "".join(f'<testcase classname="t" name="{name}">{inner[kind]}</testcase>' for name, kind in tests.items())
    return f"<testsuites><testsuite>{cases}</testsuite></testsuites>"


def judged(status: int | None = 0, baseline: dict[str, Status] | None = None, **tests: str) -> CorrectnessResult:
    return judge(ran(status), report(**tests), wants_report=True, baseline=baseline)


def test_a_pass_needs_one_test_that_passed_and_none_that_failed() -> None:
    assert judged(a="pass", b="skip").status is Status.PASSED
    assert [check.status for check in judged(a="pass", b="skip").cases] == [Status.PASSED, Status.SKIPPED]


def test_a_failure_names_the_test_and_its_assertion() -> None:
    found = judged(1, a="pass", b="fail", c="fail")
    assert found.status is Status.FAILED
    assert found.message.startswith("t::b: AssertionError: off by 3")
    assert "Mismatched elements: 7" in found.message
    assert "2 of 3 tests failed; also t::c" in found.message


def test_a_failure_counts_whatever_the_exit_status_says() -> None:
    assert judged(0, a="pass", b="error").status is Status.FAILED


def test_an_exit_status_counts_whatever_the_report_says() -> None:
    found = judged(3, a="pass")
    assert found.status is Status.CRASHED
    assert "every test passed, but the command exited with status 3" in found.message


def test_all_skipped_is_no_pass_and_says_why() -> None:
    found = judged(0, a="skip", b="skip")
    assert found.status is Status.SKIPPED
    assert "all 2 tests were skipped, which is no pass: Backend triton is not available (2x)" in found.message


def test_tests_have_to_stay_the_baselines() -> None:
    baseline = {"t::a": Status.PASSED, "t::b": Status.SKIPPED}
    assert judged(0, baseline, a="pass", b="skip").status is Status.PASSED
    assert judged(0, baseline, a="pass", b="pass").status is Status.PASSED
    gone = judged(0, baseline, a="pass")
    assert (gone.status, "t::b of the baseline did not run" in gone.message) == (Status.TESTS_CHANGED, True)
    new = judged(0, baseline, a="pass", b="skip", c="pass")
    assert (new.status, "t::c did not run on the baseline" in new.message) == (Status.TESTS_CHANGED, True)
    lost = judged(0, baseline | {"t::b": Status.PASSED}, a="pass", b="skip")
    assert lost.status is Status.SKIPPED
    assert "t::b passed on the baseline, now skipped: Backend triton" in lost.message


def test_nothing_collected_is_no_pass() -> None:
    assert judged(0).status is Status.NOT_COLLECTED
    assert judge(ran(5), None, True, None).status is Status.NOT_COLLECTED


def test_without_a_report_the_command_crashed() -> None:
    found = judge(ran(0), None, True, None)
    assert found.status is Status.CRASHED
    assert "exited with status 0 and left no report" in found.message
    assert "complained" in found.message
    killed = judge(ran(None, "was killed by SIGSEGV"), None, True, None)
    assert "was killed by SIGSEGV" in killed.message
    assert judge(ran(0), "<testsuites", True, None).status is Status.CRASHED


def test_a_command_without_report_is_judged_by_its_status() -> None:
    assert judge(ran(0), None, False, None).status is Status.PASSED
    assert judge(ran(1), None, False, None).status is Status.FAILED
    assert judge(ran(None, "was killed by SIGSEGV"), None, False, None).status is Status.CRASHED


def test_time_that_ran_out_is_a_timeout_whatever_was_written() -> None:
    assert judge(ran(None, "did not end in time", True), report(a="pass"), True, None).status is Status.TIMEOUT


def test_the_worst_of_two_entries_for_a_test_counts() -> None:
    twice = report(a="fail").replace("</testsuite>", '<testcase classname="t" name="a"/></testsuite>', 1)
    assert [test.status for test in read_report(twice)] == [Status.FAILED]


@pytest.mark.parametrize("text", ["", "no xml", "<html/>", "<!DOCTYPE a><testsuites/>"])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"the report (is no|declares)"):
        read_report(text)


def test_properties_come_in_the_order_they_were_recorded() -> None:
    value = escape("{'a': 1}", {'"': "&quot;"})
    inner = f'<properties><property name="benchmark" value="{value}"/><property name="b" value="2"/></properties>'
    [test] = read_report(f'<testsuite><testcase classname="t" name="a">{inner}</testcase></testsuite>')
    assert test.properties == (("benchmark", "{'a': 1}"), ("b", "2"))


def test_an_error_of_pytests_own_shows_its_last_line() -> None:
    inner = '<error message="internal error">Traceback:\n  somewhere\nSystemExit: 0</error>'
    [test] = read_report(f'<testsuite><testcase classname="pytest" name="internal">{inner}</testcase></testsuite>')
    assert test.message == "internal error: SystemExit: 0"
