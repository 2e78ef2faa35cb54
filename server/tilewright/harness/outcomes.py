"""How a repository's tests ended: read from pytest's JUnit report, held against how they ended on the baseline."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.evaluation.results import CaseCheck, CorrectnessResult, Status
from tilewright.harness.commands import Ran
from tilewright.task import Case
from tilewright.text import cut, few

NO_TESTS = 5
"""Pytest's exit status where it collected nothing."""


_WORST_LAST = [Status.PASSED, Status.SKIPPED, Status.FAILED]
"""How one test can end."""


@dataclass(frozen=True)
class Test:
    """One test of a report: its id, how it ended and why, and the properties that it recorded, in order."""

    id: str
    status: Status
    message: str
    properties: tuple[tuple[str, str], ...]

    __test__ = False  # no test of ours, whatever its name


def read_report(text: str) -> list[Test]:
    """The tests of a JUnit report. Raises ValueError for text that is none, one with a document type among them."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # escaped wherever a test's own text holds it
        raise ValueError("the report declares a document type, which pytest never does")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"the report is no XML ({error}): {cut(text.strip(), 200)!r}") from None
    if root.tag not in ("testsuites", "testsuite"):
        raise ValueError(f"the report is no JUnit report: its root is <{root.tag}>")
    found: dict[str, Test] = {}
    for case in root.iter("testcase"):
        test = _test(case)
        known = found.get(test.id)
        if known is not None:  # a rerun, or a failure on the way out: the worst of them counts
            worst = max((known, test), key=lambda one: _WORST_LAST.index(one.status))
            test = Test(test.id, worst.status, worst.message, known.properties + test.properties)
        found[test.id] = test
    return list(found.values())


def properties_of(text: str, name: str) -> list[tuple[Case, str]]:
    """What the tests of a JUnit report recorded under a name, each with its test's id. Raises ValueError."""
    return [({"test": test.id}, value) for test in read_report(text) for key, value in test.properties if key == name]


def _test(case: ElementTree.Element) -> Test:
    name = "::".join(filter(None, (case.get("classname"), case.get("name")))) or "unnamed"
    properties = tuple(
        (one.get("name", ""), one.get("value") or one.text or "") for one in case.iterfind("properties/property")
    )
    for tag, status in (("failure", Status.FAILED), ("error", Status.FAILED), ("skipped", Status.SKIPPED)):
        found = case.find(tag)
        if found is not None:
            return Test(name, status, _reason(found), properties)
    return Test(name, Status.PASSED, "", properties)


def _reason(found: ElementTree.Element) -> str:
    """The assertion or the reason, with the lines that pytest marks as its cause."""
    lines = (found.text or "").splitlines()
    marked = [line for line in lines if line.startswith(("E  ", ">  "))]
    said = found.get("message") or ""
    if found.tag == "error" and not marked and lines:  # of pytest itself, whose own lines are not marked
        said = f"{said.strip()}: {lines[-1].strip()}"
    return cut("\n".join([said.strip(), *(line for line in marked[:6] if line[1:].strip() not in said)]).strip(), 800)


Baseline = Mapping[str, Status]
"""How the tests ended on the baseline, by their ids."""


def judge(ran: Ran, report: str | None, wants_report: bool, baseline: Baseline | None) -> CorrectnessResult:
    """What a run of the tests means; the tests are its cases. `report` is the JUnit report's text, None where there is
    none; `baseline` is None where this run is the baseline's."""
    tests: list[Test] = []
    try:
        if wants_report and report is not None and not ran.timed_out:
            tests = read_report(report)
            status, message = _verdict(ran, tests, baseline)
        else:
            status, message = _without_report(ran, wants_report)
    except ValueError as error:
        status, message = Status.CRASHED, str(error)
    cases = [
        CaseCheck(case={"test": test.id}, hidden=False, status=test.status, message=cut(test.message, 400))
        for test in tests
    ]
    output = ran.last_words if status is not Status.PASSED else ""
    return CorrectnessResult(status=status, message=message, cases=cases, output=output)


def _without_report(ran: Ran, wanted: bool) -> tuple[Status, str]:
    if ran.timed_out:
        return Status.TIMEOUT, f"the command {ran.ended}: {ran.seconds:.0f} s"
    if wanted and ran.status == NO_TESTS:
        return Status.NOT_COLLECTED, "the command collected no test: nothing was checked"
    if wanted:
        return Status.CRASHED, f"the command {ran.ended} and left no report\n{ran.last_words[-600:]}"
    if ran.status == 0:
        return Status.PASSED, ""
    status = Status.FAILED if ran.status is not None else Status.CRASHED
    return status, f"the command {ran.ended}\n{ran.last_words[-600:]}"


def _verdict(ran: Ran, tests: list[Test], baseline: Baseline | None) -> tuple[Status, str]:
    failed, skipped = ([test for test in tests if test.status is one] for one in (Status.FAILED, Status.SKIPPED))
    if not tests:
        return Status.NOT_COLLECTED, "the command collected no test: nothing was checked"
    if failed:
        others = f"; also {few([test.id for test in failed[1:]], 4)}" if failed[1:] else ""
        counted = f"{len(failed)} of {len(tests)} tests failed"
        return Status.FAILED, f"{failed[0].id}: {failed[0].message}\n{counted}{others}"
    if baseline is not None:
        ids = {test.id for test in tests}
        if gone := sorted(baseline.keys() - ids):
            return Status.TESTS_CHANGED, f"{few(gone)} of the baseline did not run: a test that vanishes is no pass"
        if new := sorted(ids - baseline.keys()):
            return Status.TESTS_CHANGED, f"{few(new)} did not run on the baseline: its tests have to stay the same"
        if lost := [test for test in skipped if baseline[test.id] is Status.PASSED]:
            names = few([test.id for test in lost])
            return Status.SKIPPED, f"{names} passed on the baseline, now skipped: {_reasons(lost)}"
    if len(skipped) == len(tests):
        return Status.SKIPPED, f"all {len(skipped)} tests were skipped, which is no pass: {_reasons(skipped)}"
    if ran.status != 0:
        return Status.CRASHED, f"every test passed, but the command {ran.ended}\n{ran.last_words[-600:]}"
    return Status.PASSED, ""


def _reasons(skipped: list[Test]) -> str:
    counted = Counter(test.message or "no reason given" for test in skipped)
    return "; ".join(f"{reason} ({count}x)" for reason, count in counted.most_common(3))
