"""The doctor names what is missing, on machines of every kind, each with what mends it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tilewright import doctor
from tilewright.doctor import Machine, examine, this_machine
from tilewright.gpu.telemetry import Gpu
from tilewright.isolation.confinement import Isolation
from tilewright.text import Line, Mark

GPU = Gpu("NVIDIA H200", "GPU-1", "580.159.04", "sm_90")
PACKAGES = {
    "torch": "2.11.0+cu130",
    "cuda-tile": "1.7.0",
    "nvidia-cuda-tileiras": "13.4.92",
    "nvidia-cuda-nvcc": "13.4.92",
    "nvidia-nvvm": "13.4.92",
}
WORKSTATION = Machine(
    system="Linux", python=(3, 12), git="git version 2.43.0", packages=PACKAGES, tileiras="/x/tileiras",
    archs=frozenset({"sm_80", "sm_90"}),
    nvdisasm="/x/nvdisasm", torch_cuda="13.0", gpu=GPU, isolation=Isolation(landlock=4, seccomp=True),
)  # fmt: skip
LAPTOP = replace(WORKSTATION, packages=PACKAGES | {"torch": "2.13.0+cpu"}, torch_cuda=None, gpu=None)


def found(machine: Machine, name: str) -> Line:
    return next(finding for finding in examine(machine) if finding.what == name)


def test_a_complete_workstation_lacks_nothing() -> None:
    assert {finding.mark for finding in examine(WORKSTATION)} == {Mark.OK}


def test_a_laptop_is_limited_but_usable() -> None:
    states = {finding.what: finding.mark for finding in examine(LAPTOP)}
    assert Mark.FAIL not in states.values()
    assert states["GPU"] is Mark.WARN
    assert states["torch"] is Mark.OK


@pytest.mark.parametrize(
    ("machine", "name", "state", "detail", "remedy"),
    [
        (replace(WORKSTATION, gpu=replace(GPU, driver="550.54.15")), "GPU", Mark.FAIL, "550.54.15 is too old", "580"),
        (replace(WORKSTATION, system="Darwin"), "system", Mark.FAIL, "Darwin is not supported", "Linux"),
        (replace(WORKSTATION, system="Windows"), "system", Mark.FAIL, "Windows is not supported", "WSL 2"),
        (replace(WORKSTATION, torch_cuda=None), "torch", Mark.WARN, "without CUDA, beside a GPU", "pip install"),
        (replace(WORKSTATION, gpu=None), "GPU", Mark.WARN, "no driver shows one", "nvidia-driver"),
        (replace(WORKSTATION, isolation=None, broken={"workers": "OSError: [Errno 38] Function not implemented"}), "workers", Mark.FAIL, "Errno 38", "container"),  # noqa: E501
        (replace(WORKSTATION, python=(3, 10)), "python", Mark.FAIL, "3.10", "3.11"),
        (replace(WORKSTATION, python=(3, 14)), "python", Mark.WARN, "3.14", "3.12"),
        (replace(WORKSTATION, git=None), "git", Mark.FAIL, "not found", "apt-get install git"),
        (replace(WORKSTATION, tileiras=None), "tileiras", Mark.FAIL, "not found", "nvidia-cuda-tileiras"),
        (replace(WORKSTATION, archs=frozenset({"sm_100"})), "tileiras", Mark.FAIL, "does not compile for sm_90", "13.4"),  # noqa: E501
        (replace(WORKSTATION, nvdisasm=None), "nvdisasm", Mark.FAIL, "not found", "nvidia-cuda-nvdisasm"),
        (replace(WORKSTATION, packages={}), "torch", Mark.FAIL, "not installed", "pip install torch"),
        (
            replace(WORKSTATION, packages=PACKAGES | {"nvidia-nvvm": "13.5.1"}),
            "tileiras", Mark.FAIL, "different releases", "force-reinstall",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_remedy(
    machine: Machine, name: str, state: Mark, detail: str, remedy: str
) -> None:
    finding = found(machine, name)
    assert finding.mark is state
    assert detail in finding.detail
    assert remedy in finding.remedy


def test_every_problem_has_a_remedy() -> None:
    empty = Machine("Plan9", (3, 9), None, {}, None, frozenset(), None, None, None, None)
    for finding in examine(empty):
        assert finding.mark is Mark.OK or finding.remedy, finding


def test_this_machine_can_be_looked_at() -> None:
    lines = {finding.what: finding for finding in examine(this_machine())}
    expected = ["system", "workers", "python", "git", "torch", "cuda-tile", "tileiras", "nvdisasm", "GPU"]
    assert [*lines] == expected
    assert lines["workers"].mark is Mark.OK, lines["workers"].detail
    assert re.fullmatch(r"confined by Landlock \d+, seccomp", lines["workers"].detail)


def test_a_machine_without_landlock_and_seccomp_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PACKAGES", {})  # whose imports take seconds
    isolation = Isolation(missing="Landlock: Function not implemented")
    monkeypatch.setattr(doctor, "WORKER", f"print({isolation.model_dump_json()!r})")
    line = found(this_machine(), "workers")
    assert line.mark is Mark.WARN
    assert line.detail == "confined by none (Landlock: Function not implemented)"
    monkeypatch.setattr(doctor, "WORKER", "raise SystemExit('no python')")
    line = found(this_machine(), "workers")
    assert (line.mark, line.detail) == (Mark.FAIL, "none can be started: no python")
