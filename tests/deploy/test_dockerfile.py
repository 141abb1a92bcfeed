"""The image: what it is made of exists, and what it runs is a command of ours."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rtagent.cli import command_parser

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Word and arguments, comments and line breaks removed."""
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in joined.splitlines() if line]


def values(word: str) -> list[str]:
    return [rest for name, rest in instructions() if name == word]


def test_what_is_copied_exists_and_is_let_in() -> None:
    let_in = (FILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    sources = [
        source for rest in values("COPY") if "--from" not in rest for source in rest.split()[:-1]
    ]
    assert {"rtagent", "service", "pyproject.toml"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in let_in, source


def test_what_it_is_made_of_is_named_by_its_contents() -> None:
    (base,) = (each for each in values("ARG") if each.startswith("BASE="))
    assert re.fullmatch(r"BASE=python:3\.\d+-slim@sha256:[0-9a-f]{64}", base)
    installs = " ".join(values("RUN"))
    assert re.search(r"--require-hashes --no-deps\s+-r torch.txt -r base.txt", installs)


def test_the_user_is_not_root() -> None:
    words = [name for name, _ in instructions()]
    assert values("USER") == ["rtagent"]
    assert words.index("USER") < words.index("ENTRYPOINT")


def test_the_command_is_one_that_exists() -> None:
    assert values("ENTRYPOINT") == ['["rtagent"]']
    command = json.loads(values("CMD")[0])
    assert command[0] == "serve"
    given = command_parser("serve").parse_args(command[1:])
    assert given.insecure
    assert values("VOLUME") == [str(given.state_dir)]


def test_health_is_asked_on_the_port_that_is_exposed() -> None:
    (health,) = values("HEALTHCHECK")
    (port,) = values("EXPOSE")
    assert f"http://127.0.0.1:{port}/readyz" in health
    program = json.loads(health[health.index("["):])
    compile(program[-1], "healthcheck", "exec")
