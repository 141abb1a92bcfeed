"""What no command does: one line that says why, and code 2."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cartridges import ROM
from tests.cli.conftest import Refused

NONE_RUNS = "no daemon runs on the state directory"
BETWEEN = "stands between two states"
REFUSED = [
    ("", "COMMAND"),
    ("dance", "no command 'dance' (see rtagent --help)"),
    ("statsu", "no command 'statsu'; did you mean status? (see rtagent --help)"),
    ("--hlep", "rtagent: no option --hlep; did you mean --help? (see rtagent --help)"),
    ("train --secnds 5", "rtagent train: no option --secnds; did you mean --seconds?"),
    ("serve --prot=80", "rtagent serve: no option --prot; did you mean --port?"),
    ("serve --frobnicate", "no option --frobnicate (see rtagent serve --help)"),
    ("rom search --tpye u1", "rtagent rom search: no option --tpye; did you mean --type?"),
    ("bench --chek clock", "rtagent bench: no option --chek; did you mean --check?"),
    ("status now", "rtagent status: unrecognized arguments: now (see rtagent status --help)"),
    ("serve --set policy.network=brain", "policy.network = 'brain'"),
    ("serve --set inference.processes=0", "inference.processes = 0"),
    ("serve --set env.rate_hz=0", "env.rate_hz = 0"),
    ("serve --config /nowhere/rtagent.toml", "/nowhere/rtagent.toml"),
    *((f"{command} ''", "must name a file or a folder, and is empty")
      for command in ("serve --state-dir", "status --state-dir", "serve --config", "evaluate")),
    ("status", NONE_RUNS),
    ("set inference.processes=3", NONE_RUNS),
    ("events --follow", NONE_RUNS),
    ("watch", NONE_RUNS),
    ("login", NONE_RUNS),
    ("events --limit 0", "--limit 0: must be 1 to 1000"),
    ("events --limit x", "invalid int value"),
    *((f"watch --interval {each}", f"--interval {each}: must be 0.1 to 10 seconds")
      for each in ("0", "nan")),
    *((f"doctor --seconds {each}", f"rtagent: --seconds {each}: must be above 0, at most 3600")
      for each in ("0", "nan", "1000000000")),
    *((f"{command} --seconds 0", "rtagent: --seconds 0: must be above 0")
      for command in ("plan", "profile")),
    *((f"{command} --set policy.remote=ws://there:1 --set learning.processes=0", "no network here")
      for command in ("plan", "plan --placement", "profile")),
    ("plan --picture plan.png", "give --placement, too"),
    ("plan --placement --picture plan.gif", "--picture plan.gif: the name must end in"),
    ("plan --placement --picture none/plan.png", "--picture none/plan.png: cannot be written"),
    ("profile --batch-size 0", "--batch-size 0: must be 1 to 65536"),
    ("profile --set policy.network=wormhole", "policy.network"),
    ("play .", "no checkpoint in it"),
    ("evaluate .", "no checkpoint in it; train one"),
    ("evaluate absent", "absent: no such checkpoint; give the path of one, or train one"),
    (f"evaluate {ROM}", "is no checkpoint, or is corrupt (Error while deserializing"),
    ("evaluate --episodes 0", "--episodes 0: must be 1 to"),
    ("evaluate --seed -5", "--seed -5: must not be negative"),
    ("evaluate --live --video a.mp4", "leave --live out"),
    ("bench nothing", "no benchmark 'nothing'; there are: "),
    *((f"experiment {each}", f"{each.split()[0]}: give the name of an experiment, too")
      for each in ("--quick", "--out r", "--seeds 3", "--only a=1", "--anew")),
    ("experiment --list --quick", "--quick: give the name of an experiment, too"),
    ("experiment dance", "no experiment 'dance'; there are: "),
    *((f"experiment interaction-time --seeds 0 {each}", f"--seeds {each}: must be 0 to 2147483647")
      for each in ("-1", "2147483648")),
    ("experiment interaction-time --only ticks=7.5",
     "--only ticks=7.5: no such trial; ticks is one of "),
    ("experiment interaction-time --out /dev/null/x", "/dev/null/x: Not a directory"),
    *((f"check-env CartPole-v1 --kwargs {each}", f"--kwargs {each}: ")
      for each in ("{", "[1]", "speed=2")),
    ("check-env CartPole-v1 --rate-hz 0", "rate_hz = 0"),
    ("check-env CartPole-v1 --seconds 0", "seconds = 0"),
    ("config", "required"),
    ("config erase", "'erase'"),
    ("config show --format markdown", "--format markdown"),
    ("config schema --format table --json", "--format table"),
    ("config show --config none.toml", "none.toml: No such file"),
    *((f"config schema {option} learning.rollout=64", "of `show` alone")
      for option in ("--set", "--config")),
    ("rerun --save run", "--save run: "),
    ("simulate --processes many", "'many'"),
    ("simulate --algorithm magic", "algorithm: 'magic'"),
    ("simulate --distribution flat", "distribution: 'flat'"),
    ("simulate --processes 0", "processes: must be 1 to 1024, not 0"),
    *((f"simulate --inference-ticks {each}", f"--inference-ticks {each}: must be 0.01 to 100000")
      for each in ("0", "nan", "1e-300", "200000")),
    ("simulate --inference-ticks inf", "--inference-ticks inf"),
    *((f"simulate{env} --seconds {each}", f"--seconds {each}: must be above 0, at most 86400")
      for env in ("", " --env CartPole-v1") for each in ("0", "-1", "nan", "1000000")),
    ("simulate --policy train", "--policy: give --env ID, too"),
    ("simulate --set run.seed=3", "--set: give --env ID, too"),
    ("simulate --step-ticks 1", "step_ticks: must be at least 0, and below 1"),
    ("simulate --step-ticks nan", "step_ticks: must be at least 0, and below 1"),
    ("simulate --env CartPole-v1 --step-ticks 0.5", "with --env, a step takes no time"),
    ("simulate --env CartPole-v1 --processes 3", "--processes: with --env, use --set infer"),
    ("simulate --env CartPole-v1 --inference-ticks 3", "with --env, use --inference-ms MS"),
    ("simulate --env CartPole-v1 --update-ms 0", "--update-ms 0: must be above 0, at most 3600000"),
    *((f"simulate --env CartPole-v1 {each}", "must be at least 1e-05") for each in (
        "--inference-ms 0.001 --set inference.algorithm=maximum-time", "--update-ms 1e-9",
        "--set inference.injected_latency_ms=1e-9",
    )),
    ("simulate --env CartPole-v1 --policy absent", "absent: no such checkpoint"),
    (f"simulate --env CartPole-v1 --seconds 1 --save {ROM}/x", f"--save {ROM}/x: Not a dir"),
    (f"simulate --env CartPole-v1 --save {ROM.parent}", "the folder is not empty; name a new one"),
    ("simulate --env CartPole-v1 --policy x --save y", "--save: a checkpoint that plays learns"),
    ("simulate --env Nowhere-v7", "Nowhere-v7"),
    ("simulate --env CartPole-v1 --set inference.processes=auto", "inference.processes = 'auto'"),
    ("simulate --spread -0.5", "spread"),
    ("simulate --spread inf", "--spread inf"),
    ("simulate --seed -1", "--seed -1"),
    *((f"policy-server {options} --port 0", said) for options, said in (
        ("absent", "absent: no such checkpoint"),
        ("no_such_module:make --set env.id=CartPole-v1", "no_such_module:make"),
        ("--parallel 0", "--parallel 0: must be 1 to 64"),
        ("--host 0.0.0.0", "RTAGENT_REMOTE_TOKEN"),
        ("--tls-key absent.key", "--tls-key needs --tls-certificate"),
        ("--tls-certificate absent.pem", "--tls-certificate: cannot read absent.pem"),
    )),
    ("policy-server --host '' --port 0", "rtagent: 0.0.0.0 can be reached from other machines"),
    ("policy-server --host ü..x --port 0", "cannot listen on ü..x port 0: encoding of host"),
    ("donkey-sim --port 70000", "--port 70000: must be 0 to 65535"),
    ("donkey-sim --fps 0", "--fps 0"),
    ("donkey-sim --fps nan", "--fps nan: must be 1 to 240"),
    ("donkey-sim --clients 0", "--clients 0"),
    ("donkey-sim --seed -1", "--seed -1"),
    ("donkey-sim --host no.such.host.invalid --port 0", "cannot listen on no.such.host.invalid"),
    ("donkey-sim --host ü..x --port 0", "cannot listen on ü..x:0: encoding of hostname failed"),
    ("donkey-sim --track oval", "'oval'"),
    ("donkey-sim --race 0", "--race 0: must be 1 to 500 laps"),
    ("donkey-sim --race two", "'two'"),
    ("donkey-sim --race 1 --checkpoints 0", "--checkpoints 0: must be 1 to 50"),
    ("donkey-sim --race 1 --race-time-limit 0.9", "must be 1 to 86400 seconds"),
    ("donkey-sim --race 1 --race-time-limit nan", "--race-time-limit nan"),
    ("donkey-sim --race-time-limit 60", "only together with --race"),
    ("donkey-sim --checkpoints 8", "only together with --race"),
    ("rom eat", "'eat'"),
    ("rom list --loud", "--loud"),
    ("rom list a.gb", "rtagent rom list: unrecognized arguments: a.gb"),
    ("rom verify --replace", "rtagent rom verify: no option --replace"),
    ("rom import", "required: PATH"),
    ("rom import a b --as x", "one PATH"),
    ("rom import /none.gb", "cannot read the cartridge /none.gb"),
    (f"rom search {ROM} a.state", "nothing is known"),
    (f"rom search {ROM} changed a.state", BETWEEN),
    (f"rom search {ROM} a.state=1 changed", BETWEEN),
    (f"rom search {ROM} a.state changed changed b.state", BETWEEN),
    (f"rom search {ROM} a.state=x", "expected STATE=VALUE"),
    (f"rom search {ROM} a.state=1", "cannot read the start a.state"),
    (f"rom search {ROM} a.state=1 --type u9", "--type u9: there are u1"),
    (f"rom search {ROM} a.state=1 --most 0", "--most 0"),
    ("rom search gameboi a.state=1", "gameboi"),
    ("rom record", "nothing is to be kept"),
    ("rom record --states s --port 1 --keys x", "--port goes with the keyboard"),
    ("rom record rtagent/Starfal-v0 --states s", "no such environment; did you mean"),
    ("rom record gameboi --states s", "the ROM gameboi is not in"),
    ("rom record none.gb --states s", "cannot read the cartridge none.gb"),
    ("rom record rtagent/Tetris-v0 --states s", "the ROM tetris is not in"),
    ("rom record --states s", "rtagent/Starfall-v0 begins at no saved states"),
    ("rom record --states /dev/null", "--states /dev/null: File exists"),
    ("rom record --demonstration a.txt", "has to end in .demo"),
    ("rom record --demonstration a.demo --keys none.keys", "cannot read the script none.keys"),
    ("rom record --demonstration a.demo --port 70000", "cannot listen on port 70000"),
    ("rom record --states s --set env", "--set env"),
]


@pytest.mark.parametrize(("call", "reason"), REFUSED, ids=[call for call, _ in REFUSED])
def test_it_says_why_in_one_line(
    refused: Refused, state_dir: Path, monkeypatch: pytest.MonkeyPatch, call: str, reason: str
) -> None:
    monkeypatch.chdir(state_dir.parent)
    assert reason in refused(*shlex.split(call))
    assert not list(state_dir.parent.glob("*.demo"))
    assert not (state_dir / "daemon.json").exists()
