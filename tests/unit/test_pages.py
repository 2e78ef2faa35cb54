"""What agents read is checked like code: figures, names, links and snippets; and the checks themselves can fail."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import claims, names, snippets
from tests.pages.page import ROOT, Page, anchor, documents, pages, read
from tilewright.compiler.findings import DO, Treatment

PAGES = pages()
LONG = [one.name for one in PAGES if one.path.parent.name == "references" and one.text.count("\n") > 100]
PLAYBOOK = [one for one in PAGES if one.path.stem.startswith("playbook")]


def page(folder: Path, text: str, name: str = "page.md") -> Page:
    path = folder / name
    path.write_text(text)
    return read(path)


def test_every_figure_has_evidence_and_every_name_exists(capsys: pytest.CaptureFixture[str]) -> None:
    found = [(claims.check(one), names.check(one)) for one in PAGES]
    problems = [str(problem) for parts in found for _, listed in parts for problem in listed]
    assert not problems, "\n".join(problems)
    figures, links = (sum(one[part][0] for one in found) for part in (0, 1))
    with capsys.disabled():
        print(f"\n{len(PAGES)} pages: {figures} claims with evidence, {links} links")
    assert figures > 100
    assert links > 100


def test_names_exist_on_pages_for_people_too() -> None:
    """Their figures are written from journals."""
    listed = sorted(ROOT.glob("assets/examples/*/WALKTHROUGH.md"))
    assert len(listed) == 5
    problems = [str(problem) for path in listed for problem in names.check(read(path))[1]]
    assert not problems, "\n".join(problems)


def test_what_the_documents_claim_has_evidence() -> None:
    counts, problems = [], []
    for document in documents():
        figures, unsupported = claims.check(document) if document.claims else (0, [])
        counts.append(figures)
        problems += [*unsupported, *names.check(document, words=False)[1]]
    assert not problems, "\n".join(map(str, problems))
    assert sum(counts) > 60


def test_the_session_of_the_readme_is_recorded() -> None:
    readme = read(ROOT / "README.md")
    end = readme.text[: readme.text.index("## Install")].count("\n")
    (table,) = (fence.text for fence in readme.fences if fence.language == "text" and fence.line < end)
    session = claims.Evidence("liger-groupnorm.journal.jsonl.gz")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    for number, name, latency, correctness, status in cells:
        if number == "…":
            continue
        row = session.one(kind="row", iteration=int(number))
        assert row.optimization.startswith(name.removesuffix(" …"))
        assert status == row.verdict.kind
        assert correctness == ("PASS" if row.passed else "FAIL")
        assert latency == "-" or latency == f"{session.last(int(number)).latency_ms:.6f}"


def captured_and_compared() -> Iterator[tuple[int, int]]:
    """Bit-equal entry points of all, intervals without zero of all, and false gains of each kernel's trials."""
    table = claims.Evidence("programs-table-h100.json.gz").data.found
    yield sum(line.get("differing") == [] for line in table), len(table)
    kernels = claims.Evidence("programs-analysis-h200.json").data.kernels
    yield sum(kernel.excluding_zero for kernel in kernels), sum(kernel.comparisons for kernel in kernels)
    yield from ((kernel.false_gains, kernel.trials) for kernel in kernels)


def test_the_documents_count_what_the_records_count() -> None:
    """Counts without a unit, such as `4 of 162`, are figures too."""
    cpu, h200, mutants = (
        claims.Evidence(f"{name}.json.gz").data for name in ("redteam-cpu", "redteam-h200", "mutants")
    )
    stopped = mutants.outcomes.killed
    for document in ("README.md", "docs/trust.md", "docs/evidence.md"):
        words = " ".join((ROOT / document).read_text().split())
        counted = {*re.findall(r"(\d+) of (\d+)", words.replace(",", ""))}
        known = [(run.kept, run.attacks) for run in (cpu, h200)] + [(run.refused, run.honest) for run in (cpu, h200)]
        known += [(stopped, stopped + mutants.outcomes.survived), (0, 10000)]
        known += [*captured_and_compared()]
        assert counted <= {(str(part), str(whole)) for part, whole in known}, document
        assert len(counted) >= 3
    assert cpu.refused == 0


@pytest.mark.parametrize("name", LONG)
def test_a_long_page_opens_with_its_contents(name: str) -> None:
    """A page of over 100 lines has links to most of its sections in its first 25 lines."""
    one = read(ROOT / name)
    lines = one.text.splitlines()
    sections = {anchor(block.text[3:]) for block in one.blocks if block.text.startswith("## ")}
    linked = {*re.findall(r"\]\(#([\w-]+)\)", "\n".join(lines[:25]))}
    assert 2 * len(sections & linked) > len(sections), sorted(sections - linked)


@pytest.mark.slow
def test_every_snippet_computes_its_reference_and_compiles(capsys: pytest.CaptureFixture[str]) -> None:
    report = snippets.run(PAGES)
    assert not report.problems, "\n".join(map(str, report.problems))
    with capsys.disabled():
        print(f"\n{report.blocks} snippets with {len(report.kernels)} kernels ran, {report.compiles} compiles")
    assert report.blocks > 40


SPILLS = 'one(treatment="more-worker-warps", arch="sm_90").before.resources.spill_bytes'
NOTE = f"\n\n[^n]: measured treatments.json.gz: `{SPILLS}`"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("It spills 4,728 bytes[^n]." + NOTE, ""),
        ("It spills 4,729 bytes[^n]." + NOTE, "4,729 has no evidence"),
        ("It takes 228 `PRMT`.", "228 has no evidence"),
        ("It is 17x faster.", "17 has no evidence"),
        ("It reaches 700 TFLOPS, 5 per cent more.", "700 has no evidence"),
        ("```\nIt is 17x faster.\n```", "17 has no evidence"),
        ("---\nname: x\ndescription: It is 17x faster.\n---\n", "17 has no evidence"),
        ("It took 3.1 as long.", "3.1 has no evidence"),
        ("Gains of 2 to 15% are usual.", "2 has no evidence"),
        ("| a | time (ms) |\n|---|---|\n| b | 12 |", "12 has no evidence"),
        ("| a | reached |\n|---|---|\n| b | 4142 |", "4142 has no evidence"),
        ("| a | reached |\n|---|---|\n| b | 4143[^c] |\n\n[^c]: computed: `4141.9`", "4143 has no evidence"),
        ("| a | reached[^c] |\n|---|---|\n| b | 7 |\n| d | 9 |\n\n[^c]: computed: `7; 8`", "9 has no evidence"),
        ("| a | reached |\n|---|---|\n| b | cuTile; cuBLAS 4089 |", "4089 has no evidence"),
        ("| a | reached |\n|---|---|\n| b | +3 (-1 to +7) |", "+3 has no evidence"),
        ("| a | why |\n|---|---|\n| 117 rows | (130, 64), 130x256, `117`, {117, 118}, 117³, N = 117 |", ""),
        ("| a | why |\n|---|---|\n| b | 8 warps on sm_90, tiles of 512, [it](x.md#117) |", ""),
        ("Strides are multiples of 16 bytes; take tiles of 128x256 on `sm_90`, with tileiras 13.4.", ""),
        ("It has 4,728 bytes[^n].\n\n[^n]: measured nothing.json: `1`", "no benchmarks/evidence/nothing.json"),
        ("It has 4,728 bytes[^n].\n\n[^n]: measured treatments.json.gz: `one(arch=\"sm_90\")`", "ValueError"),
        ("It has 4,728 bytes[^n].\n\n[^n]: published it: 4728", "published by whom?"),
        ("A gain of +7.2% (+7.0 to +7.4)[^c].\n\n[^c]: computed: `7.2; 7; 7.4`", ""),
        ("A gain of +7.2%[^c].\n\n[^c]: computed: `-7.2`", "+7.2 has no evidence"),
        ("Nothing." + NOTE, "is never cited"),
        ("It takes 5 ms[^m].", "[^m] is not defined"),
        ("Twice 21 ms is 43 ms[^c].\n\n[^c]: computed: `21; 2 * 21`", "43 has no evidence"),
        ("# A\n\nIt takes 42 ms.\n\n# B\n\nIt takes 42 ms.\n\n```evidence\ncomputed: 42\n```\n", "42 has no evidence"),
        ("# A\n\nNothing.\n\n```evidence\ncomputed: 42 +\n```\n", "SyntaxError"),
        ("A session stops at 95% ([why](../docs/evidence.md#rules-of-the-loop)).", ""),
        ("A session stops at 96% ([why](../docs/evidence.md#rules-of-the-loop)).", "96 has no evidence"),
        ("| a | ms[^c] |\n|---|---|\n| d | 42 |\n| b | 21 |\n\n[^c]: computed: `21; 2 * 21`", "21 has no evidence"),
    ],
)  # fmt: skip
def test_a_figure_needs_evidence_that_gives_it(tmp_path: Path, text: str, complaint: str) -> None:
    """A note stands here behind its footnote, and is put where docs/evidence.md has it."""
    checked = page(tmp_path, text)
    notes = "\n".join(evidence_block(name, note) for name, (_, note) in checked.notes.items() if "." not in name)
    held = checked if "```evidence" in text else page(tmp_path, f"# page.md\n\n{notes}", "evidence.md")
    _, problems = claims.check(checked, held if "```evidence" in text or notes else None)
    said = "\n".join(map(str, problems))
    assert complaint in said
    assert bool(problems) == bool(complaint), said


def evidence_block(title: str, note: str) -> str:
    return f'```evidence title="{title}"\n{note}\n```\n'


@pytest.mark.parametrize(
    ("held", "complaint"),
    [
        ("# page.md\n\n" + evidence_block("n", "computed: 5"), ""),
        ("# page.md\n\n" + evidence_block("n", "computed: 6"), "5 has no evidence"),
        ("# other.md\n\n" + evidence_block("n", "computed: 5"), "does not say what gives it"),
        ("# page.md\n\n" + evidence_block("m", "computed: 5"), "does not say what gives it"),
        (
            "# page.md\n\n" + evidence_block("n", "computed: 5") + evidence_block("m", "computed: 5"),
            "page.md has no footnote of this name",
        ),
    ],
)
def test_a_footnote_has_its_note_in_the_evidence(tmp_path: Path, held: str, complaint: str) -> None:
    checked = page(tmp_path, "It takes 5 ms[^n].\n\n[^n]: H200, 2026-11-21.")
    _, problems = claims.check(checked, page(tmp_path, held, "evidence.md"))
    said = "\n".join(map(str, problems))
    assert complaint in said
    assert bool(problems) == bool(complaint), said


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Call `run_benchmark`, then `ct.load(x, index=(0,), shape=(4,), latency=2)`.", ""),
        ("Call `autotune_launch`.", "`autotune_launch` is no name"),
        ("Call `offset`, then `result.best.config` and `packed.view(torch.int16)`.", ""),
        ("Take `result.winner`.", "nothing has a `.winner`"),
        ("See `nowhere.json.gz`.", "there is no file"),
        ("Call `ct.constexpr`.", "`ct.constexpr` does not exist"),
        ("Gone: ~~`ct.load`~~.", "`ct.load` is struck out, and exists"),
        ("Pass `num_stages_per_tile=3`.", "`num_stages_per_tile` is no name"),
        ("For `sm_91`.", "`sm_91` is no architecture"),
        ("Set `CUDA_TILE_FASTER=1`.", "`CUDA_TILE_FASTER` is no variable"),
        ("Run `python benchmarks/nothing.py`.", "there is no benchmarks/nothing.py to run"),
        ("Run `python -m pytest`, `python -m tests.redteam.battery` and `python -m tests.pages`.", ""),
        ("Run `tilewright optimise`.", "`tilewright optimise` is no command"),
        ("Run `tilewright dump-ir task --fast`.", "has no --fast"),
        ("```toml\nentry = 1\n```", "nothing checks a block of toml"),
        ("```console\n$ tileiras --remarks=all --schedule x.bc\n```", "tileiras has no --schedule"),
        ("See [it](nowhere.md).", "the link to nowhere.md leads nowhere"),
        ("# A head\n\nSee [it](#another).", "names no heading"),
    ],
)
def test_a_name_has_to_exist(tmp_path: Path, text: str, complaint: str) -> None:
    _, problems = names.check(page(tmp_path, text))
    said = "\n".join(map(str, problems))
    assert complaint in said
    assert bool(problems) == bool(complaint), said


KERNEL = """# Page

```python
@ct.kernel
def double(x, out, T: Size):
    ct.store(out, index=(0,), tile=ct.load(x, index=(0,), shape=(T,)) * 2.0)
```
"""
CALL = "launch(double, 1, normal(64), empty((64,)), 64) -->"
NARROW = """```python
@ct.kernel
def narrow(x, out):
    ct.store(out, index=(0,), tile=ct.load(x, index=(0,), shape=(64,)).astype(ct.float8_e4m3fn))
```
<!-- run: x = normal(64); same(x, launch(narrow, 1, x, empty(x, torch.float8_e4m3fn)), tol=0.2) -->"""
BORROWING = """# Page

<!-- with double of right.md -->

```python
twice = double.replace_hints(occupancy=2)
```
<!-- run: x = normal(64); same(x * 2, launch(twice, 1, x, empty(x), 64)) -->"""
PLANTED = {
    "right": (KERNEL + "<!-- run: x = normal(64); same(x * 2, launch(double, 1, x, empty(x), 64)) -->", ""),
    "wrong": (KERNEL + "<!-- run: x = normal(64); same(x * 3, launch(double, 1, x, empty(x), 64)) -->", "Mismatched"),
    "unrun": (KERNEL, "no comment after the block"),
    "unlaunched": (KERNEL + "<!-- run: assert double -->", "kernel double is never run"),
    "uncompared": (KERNEL + "<!-- run: x = normal(64); launch(double, 1, x, empty(x), 64) -->", "compares nothing"),
    "half": (
        KERNEL + "<!-- run: x = normal(64); same(x * 2, launch(double, 1, x, empty(x), 64)); "
        "launch(double, 1, x, empty(x), 32) -->",
        "the result of double is compared with nothing",
    ),
    "refused": (KERNEL + '<!-- refused "power of two": launch(double, 1, normal(48), empty((48,)), 48) -->', ""),
    "taken": (KERNEL + '<!-- refused "power of two": ' + CALL, "not refused"),
    "broken": (KERNEL.replace("ct.load", "ct.lode") + "<!-- run: " + CALL, "lode"),
    "syntax": (KERNEL.replace("def double", "def double double") + "<!-- run: assert 1 -->", "SyntaxError"),
    "arch": (NARROW, "narrow for sm_80"),
    "borrowing": (BORROWING, ""),
    "unlent": (BORROWING.replace("double", "triple"), "has no attribute 'triple'"),
}  # fmt: skip


def test_a_broken_snippet_is_found(tmp_path: Path) -> None:
    listed = [page(tmp_path, text, f"{name}.md") for name, (text, _) in PLANTED.items()]
    found = snippets.run(listed, ("sm_80",)).problems
    for name, (_, complaint) in PLANTED.items():
        said = "\n".join(str(problem) for problem in found if problem.page == f"{name}.md")
        assert complaint in said, name
        assert bool(said) == bool(complaint), said


def test_every_entry_of_the_playbook_says_what_it_did_on_the_gpu() -> None:
    record = claims.Evidence("playbook.json.gz").data.rows
    parts = [re.split(r"^## ", one.text, flags=re.MULTILINE)[1:] for one in PLAYBOOK]
    entries = [" ".join(entry.split()) for part in parts for entry in part]
    unmeasured = set()
    for entry in entries:
        name, _, said = entry.partition(" ")
        assert "**When**" in said, name
        _, _, after = said.partition("H200")
        if after.startswith("** not measured yet."):
            unmeasured.add(name)
            continue
        gains = [claims.said(row.times) for row in record if row.entry == name]
        assert len(gains) >= 2, name
        assert [gain for gain in gains if gain not in after] == [], name
    assert {entry.partition(" ")[0] for entry in entries} - unmeasured == {row.entry for row in record} - {"none"}


def test_the_table_of_the_playbook_is_the_record() -> None:
    command = [sys.executable, "-m", "benchmarks.advice.playbook", "show", "benchmarks/evidence/playbook.json.gz"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    record = claims.Evidence("playbook.json.gz").data.rows
    _, _, table = shown.partition("| entry | kernel |")
    rows = table.splitlines()[2:]
    wanted = []
    for row in record:
        before, after = (f"{statistics.median(side):.4f}" for side in zip(*row.times, strict=True))
        _, low, high = claims.speedup(row.times)
        it = "helps" if low > 1.005 else "hurts" if high < 0.995 else "no difference"
        cells = [row.entry, row.kernel, before, after, claims.said(row.times), "yes" if row.helps else "no", it]
        wanted.append(f"| {' | '.join(cells)} |")
    assert rows == wanted


def test_what_gained_nothing_comes_last() -> None:
    text = (ROOT / "references" / "playbook.md").read_text()
    (table,) = re.findall(r"^\| you see .*?\n\n", text, re.MULTILINE | re.DOTALL)
    gains: dict[str, list[float]] = {}
    for row in claims.Evidence("playbook.json.gz").data.rows:
        gains.setdefault(row.entry, []).append(row.speedup)
    useless = {entry for entry, found in gains.items() if max(found) < 1.005} - {"none"}
    assert useless >= {"zero-padding", "persistent-blocks", "skip-bounds", "transposed-load"}
    assert {*re.findall(r"\]\([\w-]+\.md#([\w-]+)\)", table)} == {*gains} - useless - {"none"}
    last = {treatment.value for treatment, do in DO.items() if do.startswith("last of all")}
    assert last == useless & {*Treatment} - {"tma-rules"}, "of which the rows go the other way round"


def test_the_table_of_tensor_core_instructions_is_the_compilers() -> None:
    rows = [block for one in PLAYBOOK for block in one.blocks if block.head.startswith("| tile, bf16 |")]
    archs = re.findall(r"sm_\d+", rows[0].head)
    assert len(rows) >= 4
    for row in rows:
        label, *cells = [cell.strip(" `") for cell in row.text.strip("|").split("|")]
        tile = [int(extent) for extent in re.findall(r"\d+", label)]
        for arch, cell in zip(archs, cells, strict=True):
            one = claims.Evidence("products.json.gz").one(kernel="row_major", dtype="bfloat16", tile=tile, arch=arch)
            assert [*one.tensor_core] == ([] if cell == "none" else [cell]), (label, arch)


def recorded_files() -> dict[str, tuple[str, str, str]]:
    """The table of files in docs/evidence.md: what made each, on which machine, on which days."""
    found = {}
    for row in claims.recorded().blocks:
        if row.head.startswith("| file |"):
            names, command, machine, date = (cell.strip() for cell in row.text.strip("|").split("|"))
            found |= dict.fromkeys(re.findall(r"`([^`]+)`", names), (command, machine, date))
    return found


def test_the_evidence_is_listed() -> None:
    """With the machine and the day that each file itself names."""
    listed = recorded_files()
    assert {*listed} == {path.name for path in claims.EVIDENCE.iterdir()}
    for name, (_, machine, date) in listed.items():
        data = claims.Evidence(name).data if ".json" in name and "journal" not in name else {}
        gpu = data.get("gpu", data.get("versions", {}).get("gpu", ""))
        assert gpu == "" or machine == ("CPU" if gpu == "none" else gpu.split()[1]), name
        assert data.get("date", date)[:10] == date[:10], name


def test_footnotes_say_where_and_when() -> None:
    """As docs/evidence.md does of the file that the figure is from."""
    listed, evidence, seen = recorded_files(), claims.recorded(), 0
    for one in PAGES:
        for name, (line, text) in one.notes.items():
            kind, _, rest = claims.note_of(name, one, evidence).partition(" ")
            place = f"{one.name}:{line}: {text}"
            if kind == "published":
                assert text == f"{rest.partition(': ')[0]}.", place
            if kind == "measured":
                _, machine, date = listed[rest.partition(":")[0]]
                assert ("without a GPU" if machine == "CPU" else machine) in text, place
                days = re.findall(r"2026-\d\d-\d\d", text)
                assert days and all(min(date.split(" to ")) <= day <= max(date.split(" to ")) for day in days), place
                seen += 1
    assert seen > 90
