"""The doctor names what is missing, on machines of every kind, each with what mends it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tilewright import doctor
from tilewright.doctor import Finding, Machine, State, confinement, examine, this_machine
from tilewright.gpu.telemetry import Gpu
from tilewright.isolation.confinement import Isolation

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
    nvdisasm="/x/nvdisasm", torch_cuda="13.0", gpu=GPU,
)  # fmt: skip
LAPTOP = replace(WORKSTATION, packages=PACKAGES | {"torch": "2.13.0+cpu"}, torch_cuda=None, gpu=None)


def found(machine: Machine, name: str) -> Finding:
    return next(finding for finding in examine(machine) if finding.name == name)


def test_a_complete_workstation_lacks_nothing() -> None:
    assert {finding.state for finding in examine(WORKSTATION)} == {State.OK}


def test_a_laptop_is_limited_but_usable() -> None:
    states = {finding.name: finding.state for finding in examine(LAPTOP)}
    assert State.MISSING not in states.values()
    assert states["GPU"] is State.LIMITED
    assert states["torch"] is State.OK


@pytest.mark.parametrize(
    ("machine", "name", "state", "detail", "remedy"),
    [
        (replace(WORKSTATION, gpu=replace(GPU, driver="550.54.15")), "driver", State.MISSING, "550.54.15 is too old", "580"),  # noqa: E501
        (replace(WORKSTATION, system="Darwin"), "system", State.MISSING, "Darwin is not supported", "Linux"),
        (replace(WORKSTATION, system="Windows"), "system", State.MISSING, "Windows is not supported", "WSL 2"),
        (replace(WORKSTATION, torch_cuda=None), "torch", State.LIMITED, "without CUDA, beside a GPU", "pip install"),
        (replace(WORKSTATION, gpu=None), "GPU", State.LIMITED, "no driver shows one", "nvidia-driver"),
        (replace(WORKSTATION, broken={"processes": "OSError: [Errno 38] Function not implemented"}), "processes", State.MISSING, "Errno 38", "container"),  # noqa: E501
        (replace(WORKSTATION, python=(3, 10)), "python", State.MISSING, "3.10", "3.11"),
        (replace(WORKSTATION, python=(3, 14)), "python", State.LIMITED, "3.14", "3.12"),
        (replace(WORKSTATION, git=None), "git", State.MISSING, "not found", "apt-get install git"),
        (replace(WORKSTATION, tileiras=None), "tileiras", State.MISSING, "not there", "nvidia-cuda-tileiras"),
        (replace(WORKSTATION, archs=frozenset({"sm_100"})), "tileiras", State.MISSING, "does not compile for sm_90", "13.4"),  # noqa: E501
        (replace(WORKSTATION, nvdisasm=None), "nvdisasm", State.MISSING, "not found", "nvidia-cuda-nvdisasm"),
        (replace(WORKSTATION, packages={}), "torch", State.MISSING, "not installed", "pip install torch"),
        (
            replace(WORKSTATION, packages=PACKAGES | {"nvidia-nvvm": "13.5.1"}),
            "tileiras", State.MISSING, "different releases", "force-reinstall",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_remedy(
    machine: Machine, name: str, state: State, detail: str, remedy: str
) -> None:
    finding = found(machine, name)
    assert finding.state is state
    assert detail in finding.detail
    assert remedy in finding.remedy


def test_every_problem_has_a_remedy() -> None:
    empty = Machine("Plan9", (3, 9), None, {}, None, frozenset(), None, None, None)
    for finding in examine(empty):
        assert finding.state is State.OK or finding.remedy or finding.name == "driver", finding


def test_this_machine_can_be_looked_at() -> None:
    names = [finding.name for finding in examine(this_machine())]
    expected = ["system", "processes", "python", "git", "torch", "cuda-tile", "tileiras", "nvdisasm", "GPU", "driver"]
    assert names == expected


def test_what_confines_workers_is_told() -> None:
    found = confinement()
    assert (found.name, found.state) == ("workers", State.OK), found.detail
    assert re.fullmatch(r"confined by Landlock \d+, seccomp", found.detail)


def test_a_machine_without_landlock_and_seccomp_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    isolation = Isolation(missing="Landlock: Function not implemented")
    monkeypatch.setattr(doctor, "CONFINE", f"print({isolation.model_dump_json()!r})")
    found = confinement()
    assert found.state is State.LIMITED
    assert found.detail == "confined by none (Landlock: Function not implemented)"
    monkeypatch.setattr(doctor, "CONFINE", "raise SystemExit('no python')")
    assert confinement().detail == "their confinement could not be tried: no python"
