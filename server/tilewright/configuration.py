"""What a repository says once for all its sessions: the table `[tool.tilewright]` of its pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import Field

from tilewright.cases import Backend, Strict
from tilewright.errors import UsageError
from tilewright.rules import Rules
from tilewright.taskerrors import validated

FILE = "pyproject.toml"
CONFIGURED = "task in [tool.tilewright] of pyproject.toml"
FOLDER = "folder of task.toml, or a file in it"


class Configuration(Strict):
    """Arguments of tools and commands, for calls that leave them out."""

    task: str = Field("", description=f"{FOLDER}, relative to pyproject.toml")
    backend: Literal["auto", "cuda", "cpu"] = Field("auto", description="cuda measures; cpu models the latency")
    rules: Rules = Field(Rules(), description="rules by name, before those of task.toml")

    @property
    def device(self) -> Backend | None:
        """The backend that is named; None: what this machine has."""
        return None if self.backend == "auto" else Backend(self.backend)


def configuration_of(root: Path) -> Configuration:
    """The configuration of the repository at `root`; its task is an absolute path. Raises `UsageError`."""
    try:
        project = tomllib.loads((root / FILE).read_text(encoding="utf-8"))
        tables = project.get("tool", {}).get("tilewright", {})
    except FileNotFoundError:
        return Configuration()
    except (ValueError, AttributeError) as error:
        raise UsageError(f"{FILE} cannot be read: {error}") from None
    configuration = validated(Configuration, tables, f"{FILE}: [tool.tilewright] ")
    task = str(root / configuration.task) if configuration.task else ""
    return configuration.model_copy(update={"task": task})
