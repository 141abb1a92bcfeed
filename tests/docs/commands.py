"""The commands in the documentation, and whether the code accepts them.

A fenced block without a language, or with `sh`, is a shell's. What is not rtagent's own is named in
`FOREIGN`, so that a command which nobody has thought of is an error.
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from unittest.mock import patch

from benchmarks import experiment
from rtagent import cli
from rtagent.cli.bench import find_scripts
from rtagent.config_sources import load_config

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "deploy" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"(?ms)^( *)```(\w*)\n(.*?)^\1```")
FOREIGN = {"docker", "ssh", "systemctl", "cp", "export", "curl", "python3.11", "ray"}
"""Foreign programs, whose arguments are not tested."""
OWN_SCRIPTS = {
    "scripts/test", "scripts/check", "scripts/docs", "scripts/wheel", "scripts/debian13", ".ci/run",
}
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())
             ["project"]["optional-dependencies"])


class Command(NamedTuple):
    """A command: its page, its line as written there, and its words."""

    page: str
    line: str
    words: tuple[str, ...]


class Parsed(BaseException):
    """A script has accepted its arguments."""


def blocks(*languages: str) -> Iterator[tuple[Path, str]]:
    """Page and content of each fenced block in one of the languages."""
    for page in PAGES:
        for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
            if match[2] in languages:
                yield page, re.sub(rf"(?m)^{match[1]}", "", match[3])


def commands() -> Iterator[Command]:
    """Every command of the shell blocks; `.venv/bin/rtagent`, `scripts/serve` become `rtagent`."""
    for page, text in blocks("", "sh"):
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield Command(str(page.relative_to(ROOT)), line.strip(), tuple(own(words)))


def own(words: Sequence[str]) -> list[str]:
    """The words of the command itself, without sudo, assignments, `docker exec` or ssh."""
    words = list(words)
    while words and (words[0] == "sudo" or re.match(r"[A-Z_]+=", words[0])):
        words = words[1:]
    if words[:2] == ["docker", "exec"]:
        words = words[3:]
    elif words[:1] == ["ssh"] and "rtagent" in words:
        words = words[words.index("rtagent"):]
    if words[0] == "scripts/serve":
        return ["rtagent", "serve", *words[1:]]
    if words[0].startswith(("/opt/", ".venv/")):
        words[0] = Path(words[0]).name
    return words


def check(words: Sequence[str]) -> None:
    """Raise if the code would not accept the command; runs in the repository's root."""
    program, *rest = words
    if program == "rtagent":
        check_rtagent(rest)
    elif program == "pip":
        check_pip(rest)
    else:
        assert program in FOREIGN | OWN_SCRIPTS, f"{program}: no test knows it"
    if program in OWN_SCRIPTS:
        assert os.access(ROOT / program, os.X_OK)
    for word in rest:
        if re.fullmatch(r"(deploy|examples|requirements|tests|docs|benchmarks)/\S+", word):
            assert (ROOT / word).exists(), word


def check_rtagent(arguments: Sequence[str]) -> None:
    """Parse the arguments and, where there are settings, load the configuration."""
    parsed = cli.command_parser(arguments[0]).parse_args(arguments[1:])
    if hasattr(parsed, "overrides"):
        load_config(parsed.config, parsed.overrides or (), {})
    if arguments[0] == "set":
        from rtagent.cli.set_value import parse_settings

        parse_settings(parsed.settings)
    if arguments[0] == "bench" and parsed.name:
        check_benchmark(parsed.name, parsed.rest)
    if arguments[0] == "experiment" and parsed.name:
        trials = experiment.load(parsed.name).trials(parsed.quick)
        assert experiment.chosen([{"params": dict(each)} for each in trials], parsed.only)


def check_benchmark(name: str, arguments: Sequence[str]) -> None:
    """Run a benchmark up to the end of its argument parser."""
    script = find_scripts()[name]
    take = argparse.ArgumentParser.parse_args

    def parse_args(parser: argparse.ArgumentParser, *given: Any, **options: Any) -> NoReturn:
        take(parser, *given, **options)
        raise Parsed

    with (
        patch.object(argparse.ArgumentParser, "parse_args", parse_args),
        patch.object(sys, "argv", [str(script), *arguments]),
    ):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except Parsed:
            return
    raise AssertionError(f"{name} looked at no arguments")


def check_pip(arguments: Sequence[str]) -> None:
    """Check that the extras exist."""
    for word in arguments:
        if match := re.match(r"rtagent\[([\w,-]+)\]", word):
            assert set(match[1].split(",")) <= EXTRAS, word


def experiments() -> Iterator[str]:
    """The experiments that sentences name with their options."""
    for page in PAGES:
        text = " ".join(page.read_text(encoding="utf-8").split())
        yield from re.findall(r"`rtagent (experiment [a-z][^`]*)`", text)


def measured() -> Iterator[str]:
    """The commands in the table of `docs/measured.md`: a benchmark, or `experiment` and a name."""
    for line in (ROOT / "docs" / "measured.md").read_text(encoding="utf-8").splitlines():
        if not line.startswith("| ") or line.startswith("| what"):
            continue
        # A figure of an earlier version names its old command and, after "today", the present one.
        cell = line.rstrip("| ").rpartition("| ")[2].rpartition("today")[2]
        for command in re.findall(r"`([^`]+)`", cell):
            if not command.startswith("--"):
                yield command.removeprefix("rtagent ")
