"""`tilewright skills`: what agents read, listed, shown, and copied to where an agent looks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.interface.terminal import console, failed
from tilewright.skillpack import MANIFEST, SkillError, install, load_skill, skill_names

skills_app = typer.Typer(no_args_is_help=True, help="The skills for agents: list, show, or install copies of them.")


@skills_app.command(name="list")
def list_() -> None:
    """Every skill with the files it comes with, and what it is for."""
    for name in skill_names():
        skill = load_skill(name)
        size = sum(map(len, skill.files.values()))
        console.print(f"{name} ({len(skill.files)} files, {size / 1024:.0f} KiB)", style="bold")
        console.print(f"  {skill.frontmatter['description']}")


@skills_app.command()
def show(
    name: Annotated[str, typer.Argument(help="a skill that `list` names")],
    file: Annotated[str, typer.Argument(help="a file of it, as in references/playbook.md")] = MANIFEST,
) -> None:
    """Print a skill, or one of its files, as it would be installed."""
    try:
        files = load_skill(name).files
    except SkillError as error:
        raise failed(str(error)) from None
    if file not in files:
        raise failed(f"{name} has no {file}; it has {', '.join(files)}")
    typer.echo(files[file].decode(), nl=False)


@skills_app.command(name="install")
def install_(
    names: Annotated[list[str] | None, typer.Argument(help="skills to install; default: all")] = None,
    to: Annotated[
        Path, typer.Option("--to", help=".claude/skills for Claude Code, .agents/skills for others, or any folder")
    ] = Path(".agents/skills"),
) -> None:
    """Write self-contained copies of the skills: references inside, links made to fit."""
    try:
        written = install(names or [], to)
    except SkillError as error:
        raise failed(str(error)) from None
    for folder in written:
        console.print(f"installed {folder}")
