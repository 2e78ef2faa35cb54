"""The command line, the demo and the wheel, as a person meets them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from jsonschema import Draft202012Validator

from tests.commandline import ROOT, tilewright
from tests.conftest import FASTER_KERNEL, RACING_KERNEL, SCALE_KERNEL, SCALE_TASK, SCALE_TOML
from tests.stage import play, quiet, start
from tilewright.errors import UsageError
from tilewright.policy import RootCause
from tilewright.rules import Rules
from tilewright.session.dumping import Dumper
from tilewright.session.loop import Loop
from tilewright.session.reports import StatusReport
from tilewright.task import Frontend, load_task
from tilewright.tools.tool import answer_schema


def test_a_person_plays_a_session_and_reads_the_log(make_task: Callable[..., Path]) -> None:
    root = make_task()

    def done(*arguments: str, status: int = 0) -> str:
        found = tilewright(*arguments, cwd=root)
        assert found.returncode == status, found.stdout + found.stderr
        return found.stdout

    for command in (["log"], ["show", "1"], ["diff", "1"]):
        assert "no current session: `tilewright session start" in tilewright(*command, cwd=root).stderr
    assert "no session yet" in done("session", "list")
    assert "'auto', 'cuda', 'cpu'" in tilewright("session", "start", "task", "--backend", "tpu", cwd=root).stderr
    begin = ("session", "start", "task", "--backend", "cpu", "--rules", "max_iterations=3")
    began, noted = (json.loads(done(*command, "--json")) for command in (begin, ("session", "status")))
    Draft202012Validator(answer_schema(StatusReport) | {"additionalProperties": False}).validate(began)
    assert began == noted
    (root / "task" / "kernel.py").write_text(SCALE_KERNEL.replace("values * factor", "values + factor"))
    assert "iteration 1: REVERT (incorrect" in done("try", "adds instead", status=1)
    assert "nothing was edited" in tilewright("try", "nothing", cwd=root).stderr
    (root / "task" / "kernel.py").write_text(FASTER_KERNEL)
    assert "PASS" in done("run-correctness")
    assert "KEEP" in done("run-benchmark")
    assert "committed" in done("git-checkpoint")
    closed = done("append-result", "a larger tile").splitlines()
    assert re.fullmatch(r"2  keep  ~[\d.]+ ms  a larger tile", closed[1])
    assert closed[-2].endswith('then run `tilewright try "…"`')
    assert closed[-1] == "the report: sandbox/report.html"

    log = done("log")
    assert re.search(r"1 +wrong +- +- +adds instead\s+Its results are wrong", log)
    assert re.search(r"2 +kept +~[\d.]+ +~[\d.]+× +a larger tile\s+Significantly faster", log)
    data = json.loads(done("log", "--json"))
    assert [row["outcome"] for row in data["iterations"]] == ["baseline", "wrong", "kept"]
    row = json.loads(done("show", "2", "--json"))
    assert row == data["iterations"][2]
    shown = done("show", "2")
    assert "Bring the file back as it was then: git restore --source=" in shown
    assert "N=1048576 dtype=float32" in shown
    assert "+TILE = 1024" in done("diff", "2")
    assert json.loads(done("diff", "2", "--json")) == {"iteration": 2, "diff": row["diff"]}
    assert "iteration 0 is the baseline: it has no diff" in tilewright("diff", "0", cwd=root).stderr
    refused = tilewright("show", "3", "--json", cwd=root)
    assert (refused.returncode, json.loads(refused.stdout)) == (2, {"error": refused.stderr.strip()})
    assert "has no iteration 3: its rows are 0 to 2" in tilewright("show", "3", cwd=root).stderr
    assert "there is no session nothing" in tilewright("log", "nothing", cwd=root).stderr

    (root / "task" / "kernel.py").write_text(FASTER_KERNEL + "\nbroken(\n")
    assert tilewright("run-correctness", cwd=root).returncode == 1
    assert "back at" in done("revert")
    assert "stop: 3 iterations are done" in done("append-result", "a typing error", "--root-cause", "memory")
    assert tilewright("append-result", "once more", cwd=root).returncode == 2
    table = (root / "sandbox" / "perf_results.md").read_text()
    assert [line.split("|")[-2].strip() for line in table.splitlines()[2:]] == ["keep", "revert", "keep", "crash"]
    page = (root / "sandbox" / "report.html").read_text()
    assert "ended: 3 iterations are done" in page
    assert "+TILE = " in page
    assert "registers" in page
    text = done("report")
    assert "| 2 | `a larger tile` | kept |" in text
    assert (root / "sandbox" / "report.md").read_text() == text.removesuffix("\n")
    body = done("report", "--pr", "--closes", "7")
    assert body.startswith("| case | before, ms |")
    assert body.rstrip().endswith("Closes #7")
    for option in (["--closes", "5"], ["--compare"]):
        assert "give --pr with them" in tilewright("report", *option, cwd=root).stderr
    (root / "sandbox" / "report.html").unlink()
    done("report")
    assert (root / "sandbox" / "report.html").read_text() == page
    assert "there is no session nothing" in tilewright("report", "nothing", cwd=root).stderr

    assert json.loads(done("session", "end", "--json"))["summary"]
    (listed,) = json.loads(done("session", "list", "--json"))
    assert [row["outcome"] for row in listed["iterations"]] == ["baseline", "wrong", "kept", "crashed"]
    assert re.search(r"\* +scale-.* 1 of 3 .*\n +ended: 3 iterations", done("session", "list"))
    assert {line["mark"] for line in json.loads(done("verify", "--json"))["checks"]} <= {"ok", "warn"}
    for command in (["check", "task"], ["report"]):
        assert json.loads(tilewright(*command, "--json", cwd=root).stdout)
    answer = json.loads(done("finish", "--json"))
    assert answer["summary"] and answer["next"]


@pytest.mark.slow
def test_a_person_can_look_and_end(make_task: Callable[..., Path]) -> None:
    root = make_task()
    assert "no session yet" in tilewright("session", "status", cwd=root).stdout
    refused = tilewright("run-correctness", cwd=root)
    assert refused.returncode == 2
    assert "run `tilewright session start` with" in refused.stderr

    async def begin(loop: Loop) -> None:
        await start(loop)

    play(root, begin)
    (root / "task" / "kernel.py").write_text(FASTER_KERNEL)
    ended = tilewright("session", "end", "--reason", "enough", cwd=root)
    assert "ended after 1 row: by the user: enough" in ended.stdout
    assert "ended: by the user: enough. scale" in tilewright("session", "status", cwd=root).stdout
    again = tilewright("session", "end", cwd=root)
    assert (again.returncode, "nothing to do: the session has ended" in again.stdout) == (0, True)
    for said in (ended.stdout, tilewright("session", "status", cwd=root).stdout, again.stdout):
        back = re.search(
            r"\. task/kernel.py holds what was not kept; `(git restore --source=\w+ -- [\w/.]+)` brings", said
        )
        assert back is not None, said
    subprocess.run(back[1].split(), cwd=root, check=True)
    assert (root / "task" / "kernel.py").read_text() == SCALE_KERNEL
    assert "not kept" not in tilewright("session", "status", cwd=root).stdout
    archive = root.parent / "out.tgz"
    assert "name the file to write" in tilewright("session", "export", str(root.parent), cwd=root).stderr
    exported = tilewright("session", "export", str(archive), cwd=root)
    assert (exported.returncode, "`tilewright verify` and `tilewright rerun 1`" in exported.stdout) == (0, True)
    assert archive.exists()


def test_dump_ir_shows_what_the_compiler_made(make_task: Callable[..., Path]) -> None:
    root = make_task()
    shown = tilewright("dump-ir", "task", "--arch", "sm_80", "--arch", "sm_120", "--stage", "cutile_ir", cwd=root)
    assert shown.returncode == 0, shown.stderr
    assert "scale_kernel on sm_80: no spills" in shown.stdout
    assert "tile_load" in shown.stdout
    mix = tilewright("dump-ir", "task", "--arch", "sm_80", "--stage", "mix", cwd=root)
    assert "kernel.py:12" in mix.stdout
    refused = tilewright("dump-ir", "task", "--compare", "incumbent", cwd=root)
    assert refused.returncode == 2
    assert "there is no session on task, so no incumbent to compare with" in " ".join(refused.stderr.split())
    assert tilewright("dump-ir", "task", "--stage", "nonsense", cwd=root).returncode == 2
    assert "sm_" in tilewright("dump-ir", "task", "--arch", "foo", cwd=root).stderr
    (root / "task" / "kernel.py").write_text(SCALE_KERNEL.replace("TILE = 64", "TILE = 48"))
    failed = tilewright("dump-ir", "task", cwd=root)
    assert failed.returncode == 1
    assert "power of two" in failed.stdout


def test_check_finds_what_a_run_may_not_show(make_task: Callable[..., Path]) -> None:
    root = make_task()
    clean = tilewright("check", "task/kernel.py", cwd=root)
    assert clean.returncode == 0, clean.stderr
    assert "nothing found" in clean.stdout
    (root / "task" / "kernel.py").write_text(RACING_KERNEL)
    racing = tilewright("check", "task", cwd=root)
    assert racing.returncode == 1
    assert "kernel.py:13: race" in racing.stdout
    assert "no task.toml is in README.md" in tilewright("check", "README.md", cwd=ROOT).stderr
    (root / "task" / "task.toml").write_text((root / "task" / "task.toml").read_text() + "\n# another case soon\n")
    stale = tilewright("check", "task", cwd=root)
    assert stale.returncode == 2
    assert "task/task.toml differs from HEAD, whose version would be used" in stale.stderr


WORK = 'return Work(bytes=8 * case["N"], flops=case["N"], dtype="float32")'


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ("return 8 * case['N']", "work must return Work(bytes, flops, dtype)"),
        ("return Work(bytes='8', flops=1, dtype='float32')", "with positive bytes"),
        ("return Work(bytes=0, flops=1, dtype='float32')", "with positive bytes"),
        ("return Work(bytes=8, flops=-1, dtype='float32')", "flops that are not negative"),
        ("return Work(bytes=8, flops=float('nan'), dtype='float32')", "flops that are not negative"),
        ("return Work(bytes=8, flops=1)", "work failed for N=1048576 dtype=float32: TypeError"),
        ("return Work(bytes=8, flops=1, dtype=torch.float32)", "no arithmetic rate is known for dtype torch.float32"),
        ("return Work(bytes=8, flops=1 // (case['N'] < 1000), dtype='float32')", "ZeroDivisionError"),
    ],
)
def test_check_calls_work_on_every_case(make_task: Callable[..., Path], work: str, words: str) -> None:
    root = make_task(task=SCALE_TASK.replace(WORK, work))
    refused = tilewright("check", "task", cwd=root)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    said = refused.stderr.splitlines()[-1]
    assert said.startswith("task.py: work")
    assert words in said


@pytest.mark.slow
def test_a_task_is_found_from_every_folder(make_task: Callable[..., Path]) -> None:
    root = make_task()
    (root / "task" / "notes").mkdir()
    for folder, path in (
        ("task", "."),
        ("task/notes", ".."),
        ("task/notes", "../kernel.py"),
        ("task", str(root / "task")),
    ):
        assert tilewright("check", path, cwd=root / folder).stdout.startswith("nothing found; not looked at: values: ")
    inside = tilewright("check", "notes", "--root", "task", cwd=root)
    assert inside.stdout.startswith("nothing found"), inside.stderr
    assert "nowhere: no such file or folder" in tilewright("check", "nowhere", cwd=root).stderr
    assert "lies outside the repository" in tilewright("check", str(root.parent), cwd=root).stderr
    assert "no spills" in tilewright("dump-ir", ".", "--arch", "sm_90", cwd=root / "task").stdout
    assert "no spills" in tilewright("dump-ir", "task/kernel.py", "--arch", "sm_90", cwd=root).stdout
    started = tilewright("session", "start", "kernel.py", "--backend", "cpu", cwd=root / "task")
    assert started.returncode == 0, started.stderr
    assert "session scale-" in started.stdout


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "tilewright", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == tilewright("--version").stdout


def test_doctor_and_help_answer() -> None:
    done = tilewright("doctor", "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == (answer["status"] == "failed")
    assert "cuda-tile" in [line["what"] for line in answer["checks"]]
    assert tilewright("--version").stdout.strip()
    for command in ("serve", "demo", "doctor", "session start", "dump-ir", "start_session", "start-session", "try"):
        assert tilewright(*command.split(), "--help").returncode == 0
    for command in ("start", "status"):
        assert f"did you mean `tilewright session {command}`?" in tilewright(command).stderr
    causes = tilewright("append-result", "--help").stdout
    assert f"<{'|'.join(get_args(RootCause))}>" in causes
    rules = tilewright("session", "start", "--help").stdout
    assert "[rules]" in rules
    assert all(name in rules for name in Rules.model_fields)
    for group in ("", "session", "skills", "program"):
        assert "..." not in tilewright(*group.split(), "--help").stdout.partition("Commands:")[2]
    assert "no such folder" in tilewright("serve", "--root", "/nowhere").stderr


@pytest.mark.slow
def test_the_demo_shows_what_it_promises(tmp_path: Path) -> None:
    demo = [sys.executable, "-m", "tilewright", "demo", "--backend", "cpu", "--only", "01"]
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    demo += ["--json", "--folder", str(tmp_path)]
    done = subprocess.run(demo, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["problems"]) == ("passed", [])
    assert list(answer["repositories"].values()) == [str(tmp_path / "rmsnorm")]
    assert "the demo is over" in (tmp_path / "rmsnorm" / "sandbox" / "report.html").read_text()
    rows = (tmp_path / "rmsnorm" / "sandbox" / "perf_results.md").read_text().splitlines()[2:]
    statuses = [row.split("|")[5].strip() for row in rows]
    assert statuses[0] == "keep"
    assert "keep" in statuses[1:]
    assert statuses.count("revert") >= 3
    assert all("~" in row or row.split("|")[3].strip() == "-" for row in rows)


def check(script: Path, **switches: str) -> subprocess.CompletedProcess[str]:
    """Check a launch of an example, in an interpreter of its own."""
    interpreted = {"TRITON_INTERPRET": "1"} if load_task(script.parent).file.frontend is Frontend.TRITON else {}
    command = [sys.executable, "-B", "-m", "tests.example", str(script)]
    environment = os.environ | interpreted | switches
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("number", range(5))
@pytest.mark.slow
def test_every_example_is_right_and_tunes_once(example_folders: list[Path], number: int) -> None:
    assert len(example_folders) == 5
    folder = example_folders[number]
    if load_task(folder).file.frontend is Frontend.TRITON:
        pytest.importorskip("triton")
    for name in ("fixed_launch.py", "autotuned_launch.py"):
        assert "tilewright" not in (folder / name).read_text()
        for switches in ({}, {"DISABLE_AUTOTUNE": "1"}):
            done = check(folder / name, **switches)
            assert (done.returncode, done.stdout) == (0, "PASS\n"), done.stderr


@pytest.mark.slow
def test_an_example_that_tunes_all_the_same_or_is_wrong_is_told(example_folders: list[Path], tmp_path: Path) -> None:
    folder = shutil.copytree(example_folders[0], tmp_path / "example")
    script = folder / "autotuned_launch.py"
    script.write_text(script.read_text().replace("DISABLE_AUTOTUNE", "ANOTHER_NAME"))
    for switches in ({}, {"DISABLE_AUTOTUNE": "1"}):
        assert check(script, **switches).stdout == "tuned although DISABLE_AUTOTUNE=1\n"
    script = folder / "fixed_launch.py"
    script.write_text(script.read_text().replace("* gain", "* gain * 1.1"))
    done = check(script)
    assert done.returncode == 1
    assert "M=" in done.stdout


@pytest.mark.slow
def test_the_wheel_carries_examples_and_skills(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(pip, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("tilewright-*.whl")
    assert wheel.stat().st_size <= 1_000_000
    names = zipfile.ZipFile(wheel).namelist()
    assert "tilewright/bundled/examples/01_rmsnorm_occupancy_only/task.toml" in names
    assert "tilewright/bundled/skills/perf-loop/SKILL.md" in names
    pages = {path.name for path in (ROOT / "references").glob("*.md")}
    assert {f"tilewright/bundled/references/{name}" for name in pages} <= {*names}
    assert "tilewright/py.typed" in names
    assert {f"tilewright/session/report/report.{end}" for end in ("html.j2", "css")} <= {*names}
    assert not [name for name in names if "__pycache__" in name]


def test_the_demo_names_what_it_cannot_take(tmp_path: Path) -> None:
    refused = tilewright("demo", "--backend", "tpu")
    assert refused.returncode == 2
    assert "'auto', 'cuda', 'cpu'" in refused.stderr
    (tmp_path / "mine").write_text("")
    refused = tilewright("demo", "--folder", str(tmp_path))
    assert refused.returncode == 2
    assert "is not empty" in refused.stderr
    assert "no example starts with 'x'" in tilewright("demo", "--only", "x").stderr


def test_a_dump_that_takes_longer_than_a_call_is_continued(make_task: Callable[..., Path]) -> None:
    root = make_task(
        toml=SCALE_TOML.replace('backend = "cpu"', 'backend = "cuda"').replace(
            "[[cases]]", '[[cases]]\nbackend = "cuda"', 1
        )
    )

    async def scene(loop: Loop) -> None:
        dumper = Dumper(loop.checkout, loop.jobs)
        try:
            folder, _ = loop.task_of("task")
            report = await dumper.dump(folder, ["sm_90"], "resources", quiet, wait_s=0.05)
            assert report.state == "running"
            waiting = asyncio.ensure_future(dumper.dump(folder, ["sm_90"], "resources", quiet))
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="dump_ir is running"):
                await dumper.dump(folder, ["sm_80"], "resources", quiet)
            report = await waiting
            assert report.state == "done"
            assert "scale_kernel on sm_90" in report.summary
        finally:
            await dumper.close()

    play(root, scene)


def test_a_name_that_no_file_can_have_is_refused_in_a_sentence(make_task: Callable[..., Path]) -> None:
    refused = tilewright("init", "ops:gelu", "--shape", "4x4", "--name", "n" * 300, cwd=make_task())
    assert refused.returncode == 2
    assert len(refused.stderr) < 240
    assert refused.stderr.count("\n") == 1
