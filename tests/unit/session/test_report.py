"""The report of a session: what it says, and that nothing an agent wrote becomes a part of its page."""

from __future__ import annotations

import gzip
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.conftest import commit_all, git
from tests.unit.programs import made
from tests.unit.session import journals
from tilewright.evaluation.results import CorrectnessResult, Level, Status, StoredProgram
from tilewright.policy import Reason
from tilewright.programs.format import program_file, write
from tilewright.programs.identity import identity
from tilewright.repository import Repository
from tilewright.session import report
from tilewright.session.records import Checked, Entry, Started
from tilewright.session.report import html, markdown
from tilewright.session.report.data import Outcome, ReportData
from tilewright.session.report.occupancy import kernels_of
from tilewright.session.report.plot import FLOOR, plot

VOID = {"meta", "link", "br", "hr", "img", "input", "circle", "rect", "path", "line"}
EVIL = "<img src=x onerror=alert(1)></td></script>`| [x](http://evil.example) @owner #1 {{ 7 * 7 }} \u202e"


class Page(HTMLParser):
    """Reads a page as strictly as a reader of XML: each tag has its end, and each identifier is there once."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def data_of(tmp_path: Path, entries: list[Entry]) -> ReportData:
    first = entries[0]
    assert isinstance(first, Started)
    journals.write(tmp_path, entries)
    return report.report_of(tmp_path, first.session, None)


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a Markdown text, whose lines each have as many cells as their table's first."""
    found: list[list[list[str]]] = []
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        rows = [line.strip("|").split("|") for line in block.splitlines()]
        assert len({len(row) for row in rows}) == 1, block
        assert all(re.fullmatch(r" :?-+:? ", cell) for cell in rows[1])
        found.append(rows)
    return found


def test_the_first_lines_say_what_got_faster_and_how_sure_that_is(tmp_path: Path) -> None:
    data = data_of(tmp_path, journals.ended(journals.session(), 2.4))
    page, text = Page(html.render(data)), markdown.render(data)
    assert page.text.startswith(
        "scale: Tilewright report scale is 2.40× as fast Interval 2.38 to 2.42×: the last program"
    )
    assert "(the product of 2 keeps is 2.50×). Replayed on NVIDIA H200." in page.text
    assert "2 of 5 kept 1 reverted, 1 wrong, 1 crashed" in page.text
    assert text.startswith("# `scale`: Tilewright report\n\n## `scale` is 2.40× (2.38 to 2.42) as fast; last program")
    assert "as fast; last program against first; replayed on `NVIDIA H200`" in text
    for shown in (page.text, text):
        assert "right in 6 runs, on 1 visible and 2 hidden cases and 2 classes of values" in shown
        for command in ("profile", "finish scale-1", "report scale-1 --pr", "session start"):
            assert f"tilewright {command}" in shown


def test_each_row_has_its_outcome_reason_figures_and_version(tmp_path: Path) -> None:
    data = data_of(tmp_path, journals.session())
    rows = data.sessions[0].iterations
    assert [row.outcome for row in rows] == [
        Outcome.BASELINE, Outcome.KEPT, Outcome.REVERTED, Outcome.WRONG, Outcome.CRASHED, Outcome.KEPT,
    ]  # fmt: skip
    totals = [row.total.speedup if row.total else None for row in rows]
    assert totals == pytest.approx([None, 2.0, 0.5, None, None, 2.5])
    for text in (Page(html.render(data)).text, markdown.render(data)):
        for wanted in (
            "tile of 256", "Significantly slower", "Its results are wrong", "wrong_values: the first at (0, 1)",
            "compile_error: no power of two", "2.00× (1.98 to 2.02)", "tilewright rerun N --session scale-1",
            "git restore --source=000000000000 -- task/kernel.py", "tilewright verify scale-1",
        ):  # fmt: skip
            assert wanted in text
    assert "registers 32 → 64" in Page(html.render(data)).text
    assert "32 registers -> 64 registers, 0 B of stack" in markdown.render(data)


def test_what_not_to_trust_is_on_the_page_and_in_the_text(tmp_path: Path) -> None:
    first = journals.started(notes=["the reference is slow", "unconfined: no Landlock"])
    data = data_of(tmp_path, journals.ended(journals.session(first), 1.5))
    notes = ["in-process", "12 of 36 hidden sizes, bound 79.2%"]
    assert [*data.sessions[0].iterations[1].doubts] == notes
    doubts = [*notes, "the reference is slow", "unconfined", "the two lie apart"]
    page, text, body = html.render(data), markdown.render(data), markdown.pr_body(data.sessions[0])
    assert not [doubt for doubt in doubts if doubt not in Page(page).text]
    assert not [doubt for doubt in doubts if doubt not in text]
    assert not [doubt for doubt in doubts if doubt not in body]
    card = page.partition('<article id="s0i1"')[2].partition("</article>")[0]
    row = page.partition('<table class="rows">')[2].partition("tile of 256")[2].partition("</tr>")[0]
    for note in notes:
        assert note in card
        assert f"[{note}]" in row


def test_cases_have_the_rate_of_their_own_work_and_count_by_their_weight(tmp_path: Path) -> None:
    (case,) = data_of(tmp_path, journals.ended(journals.session(), 2.0)).sessions[0].cases
    assert (case.rate_before, case.rate, case.percent) == ("2000 GB/s", "4000 GB/s", pytest.approx(50))
    both = [journals.timing(1.0, weight=3.0), journals.timing(16.0)]
    first = journals.result(2.0).model_copy(update={"cases": both})
    entries = [journals.started("scale-2"), *journals.trial(0, "baseline", first, Reason.BASELINE)]
    session = data_of(tmp_path, entries).sessions[0]
    assert (session.before_ms, session.after_ms) == (pytest.approx(2.0), 2.0)


def test_a_modelled_session_says_that_nothing_was_timed(tmp_path: Path) -> None:
    entries = [
        journals.started(),
        *journals.trial(0, "baseline", journals.result(1.0, level=Level.MODELLED), Reason.BASELINE),
    ]
    entries += journals.trial(1, "tile of 256", journals.result(0.5, 2.0, level=Level.MODELLED))
    data = data_of(tmp_path, entries)
    page = Page(html.render(data)).text
    assert "scale is ~2.00× as fast" in page
    assert "Nothing was timed." in page
    assert "No GPU was used" in markdown.render(data)


def test_burst_and_sustained_are_both_shown(tmp_path: Path) -> None:
    page = Page(html.render(data_of(tmp_path, journals.session()))).text
    assert "sustained 1.80× (1.70 to 1.90)" in page
    assert "sustained, at 1200 MHz" in page


@pytest.mark.parametrize("place", ["name", "detail", "trust", "notes"])
def test_no_text_of_an_agent_becomes_markup(tmp_path: Path, place: str) -> None:
    entries = journals.session(journals.started(notes=[EVIL] if place == "notes" else []))
    if place != "notes":
        more = {place: EVIL} if place != "name" else {}
        entries += journals.trial(6, EVIL if place == "name" else "x", journals.result(0.3, 1.3), **more)
    data = data_of(tmp_path, entries)
    page = html.render(data)
    read = Page(page)
    assert not read.tags & {"img", "script"}
    assert "<img src=x onerror=alert(1)></td></script>" in read.text
    assert "{{ 7 * 7 }} ?" in read.text
    assert all(link.startswith("#s0i") for link in read.links)
    for text in (markdown.render(data), markdown.pr_body(data.sessions[0], 3)):
        tables(text)
        outside = re.sub(r"`[^`\n]*`", "", text)
        assert not re.search(r"[<@`]|\]\(|#1\b|evil", outside)
        assert "\u202e" not in text


def test_the_page_needs_no_network_and_no_script(tmp_path: Path) -> None:
    page = html.render(data_of(tmp_path, journals.session()))
    assert "://" not in page
    assert not re.search(r"<(script|link|iframe|object|embed|img)\b|@import|url\(", page)
    assert "default-src 'none'" in page


def test_tables_of_the_text_are_well_formed(tmp_path: Path) -> None:
    data = data_of(tmp_path, journals.session())
    iterations, cases, environment = tables(markdown.render(data))
    assert [row[0].strip() for row in iterations[2:]] == ["0", "1", "2", "3", "4", "5"]
    assert cases[2][0].strip() == "`N=4096 dtype=float32`"
    assert [cell.strip() for cell in environment[2]] == ["backend", "`cuda`"]


def test_a_pull_request_gets_tables_and_what_it_closes(tmp_path: Path) -> None:
    session = data_of(tmp_path, journals.session()).sessions[0]
    body = markdown.pr_body(session, closes=12)
    (cases,) = tables(body)
    assert [cell.strip() for cell in cases[0]][:4] == ["case", "before, ms", "after, ms", "speedup"]
    assert body.endswith("\n\nCloses #12\n")
    assert "Closes" not in markdown.pr_body(session)
    assert markdown.pr_body(session, 12, "| a |").startswith("| a |\n\n")


def test_marks_differ_by_more_than_their_colour(tmp_path: Path) -> None:
    page = html.render(data_of(tmp_path, journals.session()))
    found = [re.findall(rf'<(\w+) class="{outcome}" (?:d="M\S+ [^l]+(l\S+))?', page) for outcome in Outcome]
    shapes = {marks[0] for outcome, marks in zip(Outcome, found, strict=True) if outcome is not Outcome.BASELINE}
    assert len(shapes) == 4
    assert page.count('class="badge') == 11


def test_the_plot_keeps_gains_apart_and_names_what_is_below_it(tmp_path: Path) -> None:
    session = data_of(tmp_path, journals.session()).sessions[0]
    shown = plot(session, 880)
    baseline, fast, slow, wrong, crashed, last = shown.points
    assert last.y < fast.y < baseline.y < slow.y < wrong.y == crashed.y == shown.lane
    assert session.iterations[2].total.speedup < FLOOR
    assert (fast.label, slow.label, last.label) == ("2.00×", "↓ 0.50×", "2.50×")
    assert last.low - last.high > 3
    assert f"V{last.y}" in shown.steps
    assert [point.label for point in plot(session, 160).points] == ["", "", "↓ 0.50×", "", "", "2.50×"]


def test_sessions_of_a_task_stand_on_one_page(tmp_path: Path) -> None:
    journals.write(tmp_path, journals.session(journals.started("scale-2"), "an earlier idea"))
    journals.write(tmp_path, [journals.started("other-1", task_name="other")])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "journal.jsonl").write_text("{}\n")
    data = data_of(tmp_path, journals.session())
    assert [session.name for session in data.sessions] == ["scale-1", "scale-2"]
    page = Page(html.render(data)).text
    assert "an earlier idea" in page
    assert "Not shown: broken: 1: no record" in page


def test_a_session_without_rows_has_a_report(tmp_path: Path) -> None:
    data = data_of(tmp_path, [journals.started()])
    assert "scale : not measured yet On NVIDIA H200." in Page(html.render(data)).text
    assert "nothing was kept" in markdown.render(data)


def test_diffs_and_configs_come_from_the_repository(tmp_path: Path) -> None:
    kernel = tmp_path / "task" / "kernel.py"
    kernel.parent.mkdir()
    commits = []
    for size in (128, 256):
        kernel.write_text(f"TILE = {size}\nTEXT = '</pre><b>'\n")
        commit_all(tmp_path) if not commits else git(tmp_path, "commit", "--quiet", "-am", "tile")
        commits.append(git(tmp_path, "rev-parse", "HEAD"))
    first = journals.started(base=commits[0], baseline=commits[0])
    entries = [first, *journals.trial(0, "baseline", journals.result(1.0), Reason.BASELINE, commit=commits[0])]
    entries += journals.trial(1, "tile of 256", journals.result(0.5, 2.0), commit=commits[1])
    journals.write(tmp_path / "sandbox", entries)
    repository = Repository(tmp_path)
    report.write(tmp_path / "sandbox", "scale-1", repository)
    session = report.report_of(tmp_path / "sandbox", "scale-1", repository).sessions[0]
    assert "-TILE = 128\n+TILE = 256" in session.iterations[1].diff
    assert session.configs == (("TILE", "128", "256"),)
    page = (tmp_path / "sandbox" / "report.html").read_text()
    assert "TEXT = '</pre><b>'" in Page(page).text
    assert page == (tmp_path / "sandbox" / "scale-1" / "report.html").read_text()
    assert "| `TILE` | `128` | `256` |" in (tmp_path / "sandbox" / "report.md").read_text()


def test_a_report_that_cannot_be_made_leaves_no_older_one(tmp_path: Path) -> None:
    journal = journals.write(tmp_path, journals.session())
    report.write(tmp_path, "scale-1", None)
    assert (tmp_path / "report.html").is_file()
    journal.write_text(journal.read_text().replace("more warps", "less warps"))
    report.write(tmp_path, "scale-1", None)
    assert not [*tmp_path.glob("**/report.*")]


def test_a_journal_whose_records_do_not_belong_together_costs_no_report(tmp_path: Path) -> None:
    journals.write(tmp_path, journals.session())
    wrong = Checked(candidate="c", secret="s", result=CorrectnessResult(status=Status.WRONG_VALUES, faulty=1))
    journals.write(tmp_path, [*journals.session(journals.started("scale-0")), wrong])
    report.write(tmp_path, "scale-1", None)
    assert "Not shown: scale-0: no session (IndexError: " in Page((tmp_path / "report.html").read_text()).text


def test_a_stored_program_says_what_its_kernels_occupy(tmp_path: Path) -> None:
    program = made.program([made.fill(made.OUT)])
    sha256 = write(program, tmp_path / "draft")
    (tmp_path / "draft").rename(program_file(tmp_path, sha256))
    stored = StoredProgram(identity=identity(program), sha256=sha256, size=1)
    (use,) = kernels_of(journals.timing(1.0, programs=[stored]), tmp_path)
    assert (use.name, use.stack_bytes, use.max_warps_per_sm) == ("fill", 0, 64)
    assert use.registers > 0
    assert use.warps_per_sm == 32
    assert use.limited_by == "CTAs per SM"


def test_warps_of_a_cutile_kernel_are_those_that_its_image_says(tmp_path: Path) -> None:
    held = Path(__file__).parents[2] / "fixtures" / "programs" / "matmul.program.gz"
    program_file(tmp_path, "a" * 64).write_bytes(gzip.decompress(held.read_bytes()))
    stored = StoredProgram(identity="b" * 64, sha256="a" * 64, size=1)
    (use,) = kernels_of(journals.timing(1.0, programs=[stored]), tmp_path)
    assert (use.warps_per_sm, use.limited_by) == (8, "registers and shared memory")


def test_a_stored_program_that_is_none_costs_its_figures_alone(tmp_path: Path) -> None:
    program_file(tmp_path, "a" * 64).write_bytes(b"TWPROG")
    stored = StoredProgram(identity="b" * 64, sha256="a" * 64, size=1)
    assert kernels_of(journals.timing(1.0, programs=[stored]), tmp_path) == []


def test_a_report_of_an_older_session_leaves_that_of_the_current_one(tmp_path: Path) -> None:
    for name in ("scale-1", "scale-2"):
        journals.write(tmp_path, journals.session(journals.started(name)))
    assert report.write(tmp_path, "scale-2", None)
    page = (tmp_path / "report.html").read_text()
    assert report.write(tmp_path, "scale-1", None, current=False)
    assert (tmp_path / "scale-1" / "report.html").is_file()
    assert (tmp_path / "report.html").read_text() == page
    assert not report.write(tmp_path, "nothing", None, current=False)


def test_what_was_withdrawn_without_a_check_is_not_wrong(tmp_path: Path) -> None:
    *records, row = journals.trial(1, "tile of 48", None, Reason.WITHDRAWN)
    entries = [journals.started(), *journals.trial(0, "baseline", journals.result(1.0), Reason.BASELINE), *records]
    data = data_of(tmp_path, [*entries, row.model_copy(update={"passed": False})])
    assert data.sessions[0].iterations[1].outcome is Outcome.REVERTED
