import json
import signal
import socket
import subprocess
import sys

import pytest

from rtagent.cli import main


@pytest.mark.process
def test_it_prints_its_address_serves_and_ends_on_ctrl_c() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "rtagent", "donkey-sim", "--port", "0", "--track", "generated",
         "--fps", "30"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("rtagent donkey-sim: 127.0.0.1:")
        port = int(line.split(":")[2].split(",")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
            greeting = json.loads(sock.makefile("rb").readline())
        assert greeting["msg_type"] == "scene_selection_ready"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    "options",
    [("--port", "70000"), ("--fps", "0"), ("--fps", "nan"), ("--clients", "0"), ("--seed", "-1"),
     ("--host", "no.such.host.invalid"), ("--track", "oval")],
)
def test_bad_options_are_one_line(
    options: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["donkey-sim", "--port", "0", *options])
    except SystemExit as stop:
        code = int(str(stop.code))
    assert code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_taken_port_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["donkey-sim", "--port", str(taken.getsockname()[1])]) == 2
    assert "--port" in capsys.readouterr().err
