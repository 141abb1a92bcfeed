"""`rtagent rom record`: play by keyboard or script; save states, record a demonstration."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rtagent.cli.options import add_config_options, add_json_option, config_of
from rtagent.cli.output import own_stdout, print_json, progress_bar, stdout
from rtagent.cli.rom_search import cartridge_file
from rtagent.cli.stop_signal import catch_stop_signals
from rtagent.config import Config
from rtagent.env.gameboy.rom_library import FOLDER, find_rom
from rtagent.errors import UserError

if TYPE_CHECKING:
    from rtagent.recording.player import Player
    from rtagent.recording.recorder import Recorder

TOKEN_BYTES = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("game", nargs="?", metavar="ENV_ID|NAME|PATH",
        help="an environment, an imported cartridge, or a cartridge's file; default: env.id")
    add_config_options(parser)
    add("--states", type=Path, metavar="DIR", help="folder for states, to be an env.kwargs.start")
    add("--demonstration", type=Path, metavar="FILE.demo",
        help="file for the episodes played; buttons of which no action is held together count as "
        "the action that holds most of them")
    add("--replace", action="store_true", help="overwrite the demonstration if it is there")
    add("--keys", type=Path, metavar="SCRIPT.keys",
        help="play this script, as fast as it goes, record all of it, and save a state at its end; "
        "without it: play with the keyboard, in a browser")
    add("--port", type=int, metavar="P", help="port of the page on 127.0.0.1; default: a free one")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Play, and print what was saved."""
    # The emulator and the server are for this action alone.
    from rtagent.recording.player import open_player
    from rtagent.recording.recorder import Recorder, demonstration_file, states_folder

    if args.states is None and args.demonstration is None:
        raise UserError("nothing is to be kept: give --states DIR, --demonstration FILE.demo or "
                        "both")
    if args.keys is not None and args.port is not None:
        raise UserError("--port goes with the keyboard, not with --keys")
    config = _configured(args)
    states, demonstration = args.states, args.demonstration
    if states is not None:
        states = states_folder(states)
    if demonstration is not None:
        demonstration = demonstration_file(demonstration, replace=args.replace)
    with own_stdout():
        player = open_player(config.env, config.run.seed, demonstrates=demonstration is not None)
    try:
        recorder = Recorder(player, _name(config), states, demonstration)
        if args.keys is not None:
            with own_stdout():
                _play_script(args.keys, player, recorder)
        else:
            _play_with_keyboard(args, recorder)
    finally:
        with own_stdout():
            player.close()
    _report(recorder, as_json=args.json)
    return 0


def _configured(args: argparse.Namespace) -> Config:
    """The configuration, in which the named game is the environment."""
    import gymnasium

    from rtagent.env.registry import register

    register()
    config, game = config_of(args), args.game
    if game is None:
        return config
    changes = {"id": game}
    if game not in gymnasium.registry:
        rom = cartridge_file(game)
        if rom is None and not ("/" in game or ":" in game):
            rom = find_rom(config.state_dir / FOLDER, game).path
        if rom is not None:
            changes = {"id": "gameboy", "kwargs": {**config.env.kwargs, "rom": str(rom)}}
    return config.model_copy(update={"env": config.env.model_copy(update=changes)})


def _name(config: Config) -> str:
    """The beginning of the states' names: the name of the cartridge, or of the environment."""
    rom = config.env.kwargs.get("rom")
    return Path(rom).name.partition(".")[0] if rom else config.env.id.rpartition("/")[2]


def _play_script(path: Path, player: Player, recorder: Recorder) -> None:
    from rtagent.env.gameboy.key_script import MAX_FRAMES
    from rtagent.recording.scripted import load_script, play
    from rtagent.recording.tape import MOST_TICKS

    recorded = recorder.demonstration is not None
    script = load_script(path, player, MOST_TICKS if recorded else MAX_FRAMES)
    if recorded:
        recorder.start()
    try:
        with progress_bar() as progress:
            task = progress.add_task(path.name, total=sum(ticks for ticks, _ in script))
            play(player, script, lambda ticks: progress.advance(task, ticks))
        if recorder.keeps_states:
            recorder.save_state()
    finally:
        # Whatever ends the script, what was recorded before is kept.
        recorder.stop()


def _play_with_keyboard(args: argparse.Namespace, recorder: Recorder) -> None:
    from rtagent.clock import MonotonicClock
    from rtagent.recording.page import address, listen, serve
    from rtagent.recording.session import Session

    with own_stdout():
        # Raises a UserError if the page would have nothing to show.
        recorder.player.screen()
    token = secrets.token_urlsafe(TOKEN_BYTES)
    session = Session(recorder, MonotonicClock())
    with listen(args.port or 0) as sock, catch_stop_signals() as stop:
        url = address(int(sock.getsockname()[1]), token)
        # With --json stdout has nothing but the document.
        print(f"rtagent rom record: {url}", file=sys.stderr if args.json else None, flush=True)
        with own_stdout():
            try:
                serve(sock, session, token, lambda: stop.received)
            finally:
                session.finish()


def _report(recorder: Recorder, *, as_json: bool) -> None:
    tape, file = recorder.tape, recorder.demonstration
    if as_json:
        written = {"file": str(file), "episodes": tape.episodes, "ticks": tape.ticks}
        saved = [str(path) for path in recorder.saved]
        print_json({"states": saved, "demonstration": written if tape.ticks else None})
        return
    lines = [f"state: {path}" for path in recorder.saved]
    if file is not None and tape.ticks:
        episodes = f"{tape.episodes} episode{'' if tape.episodes == 1 else 's'}"
        lines.append(f"demonstration: {file}: {episodes}, {tape.ticks} ticks")
    elif file is not None:
        lines.append("demonstration: nothing was recorded")
    for line in lines:
        # Not wrapped, however narrow the terminal is, so that paths can be copied.
        stdout().print(line, soft_wrap=True)
