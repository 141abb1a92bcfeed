"""Our server and an unmodified client; our client and a server like openpi's."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import websockets
from openpi_client import msgpack_numpy
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin
from websockets.utils import accept_key

from rtagent.clock import MonotonicClock
from rtagent.errors import UserError
from rtagent.remote.answers import Terms
from rtagent.remote.protocol import ProtocolError, decode, encode
from rtagent.remote.server import PolicyServer, listen
from rtagent.remote.wire import (
    PIECE_BYTES,
    TOKEN_VARIABLE,
    LostError,
    RefusedError,
    WebsocketDialer,
    token_of,
)
from tests.conftest import eventually
from tests.ports import free_port
from tests.remote.serving import (
    SHAPE,
    Waiting,
    ask,
    dialled,
    openpi_like,
    policy_server,
    received,
    seen,
    served,
)

TOKEN = "secret" * 8


def test_an_unmodified_client_is_served() -> None:
    with policy_server(served(), TOKEN) as (address, _):
        client = WebsocketClientPolicy(address, api_key=TOKEN)
        metadata = client.get_server_metadata()
        assert metadata["outputs"] == 3
        assert metadata["observation"] == {"shape": [2, 3], "dtype": "float32"}
        for action in (2, 0, 1):
            found = client.infer({"observation": seen(action), "prompt": "ignored"})
            np.testing.assert_array_equal(found["values"], np.eye(3, dtype=np.float32)[action])
            np.testing.assert_array_equal(found["actions"], [[action]])
            assert found["server_timing"]["infer_ms"] >= 0.0
        with pytest.raises(RuntimeError, match="no array 'observation'"):
            client.infer({"image": seen(0)})


def test_chunks_of_an_arm_are_served() -> None:
    policy = served(lambda _: np.full((1, 10, 2), 0.5, np.float32), outputs=2, discrete=False)
    with policy_server(policy) as (address, _):
        found = WebsocketClientPolicy(address).infer({"observation": seen(0)})
        assert found["actions"].shape == (10, 2)


def test_a_page_in_a_browser_is_refused() -> None:
    """Without a token a page of any site could ask a server on the machine of its visitor."""
    with policy_server(served()) as (address, server):
        with pytest.raises(websockets.InvalidStatus) as caught:
            connect(address, origin=Origin("https://example.org"))
        assert caught.value.response.status_code == 403
        assert server.counts.refused == 1
        assert ask(dialled(address), encode({"observation": seen(1)}))


def test_our_client_asks_a_server_like_openpis() -> None:
    def infer(observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"actions": np.tile(observation["observation"][:2], (10, 1))}

    with openpi_like(infer) as address:
        wire = dialled(address)
        terms = Terms(2, discrete=False).agreed(wire.metadata)
        answer = ask(wire, encode({"observation": np.array([0.25, -0.5, 9.0])}))
        np.testing.assert_array_equal(terms.read(decode(answer)), [[0.25, -0.5]] * 10)
        wire.close()


def counting(observations: np.ndarray, states: np.ndarray, *_: np.ndarray) -> tuple[Any, ...]:
    """The action of as many inferences as are behind the state, of three."""
    return np.eye(3, dtype=np.float32)[states[:, 0].astype(int)], states + np.array([1.0, 0.0])


RECURRENT: dict[str, Any] = {"answer": counting, "state": 2}


def test_a_client_that_sends_no_state_has_one_of_its_own() -> None:
    with policy_server(served(**RECURRENT)) as (address, _):
        clients = [WebsocketClientPolicy(address) for _ in range(2)]
        assert clients[0].get_server_metadata()["policy_state"] == 2
        # One after the other, and each by itself.
        for client, action in ((0, 0), (0, 1), (1, 0), (0, 2), (1, 1)):
            found = clients[client].infer({"observation": seen(0)})
            np.testing.assert_array_equal(found["actions"], [[action]])
        # What is sent counts, not what was left here.
        begin = np.array([1.0, 7.0], np.float32)
        found = clients[0].infer({"observation": seen(0), "policy_state": begin})
        np.testing.assert_array_equal(found["actions"], [[1]])
        np.testing.assert_array_equal(found["policy_state"], [2.0, 7.0])


def test_pending_actions_come_with_the_question() -> None:
    with policy_server(served(lambda _, pending: pending, pending=3)) as (address, _):
        client = WebsocketClientPolicy(address)
        pending = np.array([0.0, 1.0, 0.0], np.float32)
        found = client.infer({"observation": seen(0), "pending_actions": pending})
        np.testing.assert_array_equal(found["values"], pending)
        with pytest.raises(RuntimeError, match="no array 'pending_actions'"):
            client.infer({"observation": seen(0)})


@pytest.mark.parametrize("header", [f"Api-Key {TOKEN}", f"Bearer {TOKEN}", f"bearer  {TOKEN}"])
def test_the_token_is_taken_in_both_ways(header: str) -> None:
    with policy_server(served(), TOKEN) as (address, _), connect(
        address, additional_headers={"Authorization": header}
    ) as connection:
        assert msgpack_numpy.unpackb(connection.recv(30.0))["outputs"] == 3


@pytest.mark.parametrize("headers", [
    [""], [f"Basic {TOKEN}"], ["Bearer"], [TOKEN], [f"Bearer {TOKEN}x"], [f"Bearer {TOKEN}"] * 2,
])
def test_without_the_token_or_with_two_there_is_nothing(headers: list[str]) -> None:
    with policy_server(served(), TOKEN) as (address, server):
        with pytest.raises(websockets.InvalidStatus, match="401"):
            connect(address, additional_headers=[("Authorization", each) for each in headers])
        assert server.counts.refused == 1


def test_a_token_of_bytes_that_are_no_text_is_wrong() -> None:
    """As older versions of websockets pass them on."""
    server = PolicyServer(served(), MonotonicClock(), TOKEN)
    server._batcher.close()
    assert not server._knows_token(["Bearer \udcff"])


def test_a_wrong_token_is_one_line() -> None:
    with policy_server(served(), TOKEN) as (address, _):
        with pytest.raises(RefusedError, match="refuses the token"):
            dialled(address, "wrong")
        dialled(address, TOKEN).close()


@pytest.mark.parametrize(("metadata", "reason"), [
    ("hello", "the server says: hello"), (b"\xc1", "no msgpack"), (b"\x91\x01", "no map"),
])
def test_a_server_of_another_protocol_is_one_line(metadata: bytes | str, reason: str) -> None:
    with openpi_like(lambda _: {}, metadata) as address, pytest.raises(RefusedError, match=reason):
        dialled(address)


def test_an_address_without_a_server_is_reported_in_one_line() -> None:
    with pytest.raises(LostError, match="refused"):
        dialled(f"ws://127.0.0.1:{free_port()}")
    with pytest.raises(LostError, match=r"^[^\n]+$"):
        dialled("ws://no-such-name.invalid:1")


def test_a_connection_that_is_closed_at_once_is_lost_not_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        hanging_up = threading.Thread(target=lambda: sock.accept()[0].close())
        hanging_up.start()
        with pytest.raises(LostError, match=r"closed|reset") as lost:
            dialled(f"ws://127.0.0.1:{sock.getsockname()[1]}")
        hanging_up.join(30.0)
    assert not isinstance(lost.value, RefusedError)


def test_a_server_that_speaks_first_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As one of mail does; the package fails an assertion if it reads that before it has asked."""
    handshake = ClientConnection.handshake

    def after_the_greeting(connection: ClientConnection, *arguments: Any) -> None:
        eventually(lambda: connection.close_deadline is not None, "the greeting is read")
        handshake(connection, *arguments)

    monkeypatch.setattr(ClientConnection, "handshake", after_the_greeting)
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as accepting:
        accepted = accepting.submit(listening.accept)
        greeting = accepting.submit(lambda: accepted.result()[0].sendall(b"220 ready\r\n"))
        with pytest.raises(RefusedError, match=r"^no websocket there: the server speaks first$"):
            dialled(f"ws://127.0.0.1:{listening.getsockname()[1]}")
        greeting.result(30.0)
        accepted.result()[0].close()
    assert not caplog.records


def test_a_server_that_pings_and_reads_nothing_is_given_up() -> None:
    """The thread that dials must not wait for the one that cannot send the pongs."""
    def ping_without_end() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            request = connection.recv(1 << 16).decode()
            key = request.partition("Sec-WebSocket-Key: ")[2].splitlines()[0]
            connection.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Accept: "
                + accept_key(key).encode() + b"\r\n\r\n"
            )
            while True:
                connection.sendall((b"\x89\x7d" + bytes(125)) * 1000)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        pinging = threading.Thread(target=ping_without_end)
        pinging.start()
        dialer = WebsocketDialer(
            f"ws://127.0.0.1:{listening.getsockname()[1]}", None, MonotonicClock()
        )
        dialer._open_s = 2.0
        dialer.dial()
        with pytest.raises(LostError, match="no metadata came"):
            assert dialer.outcome(60.0) is not None, "the attempt never ends"
        pinging.join(30.0)
        assert not pinging.is_alive()


def test_a_huge_answer_is_not_read() -> None:
    with openpi_like(lambda _: b"\0" * (64 << 20)) as address:
        wire = dialled(address)
        with pytest.raises(LostError, match="larger than 16 MiB"):
            ask(wire, encode({"observation": seen(0)}))


def test_numbers_that_the_type_of_the_observation_does_not_hold_are_refused() -> None:
    # 300 was seen as 44.
    policy, seen_as = served(dtype=np.dtype(np.uint8)), np.zeros(0, np.float32)
    (fits,) = policy.question({"observation": np.full(SHAPE, 255, np.uint16)}, seen_as)
    assert fits.dtype == np.uint8
    assert (fits == 255).all()
    with pytest.raises(ProtocolError, match="numbers above 255, the largest uint8"):
        policy.question({"observation": np.full(SHAPE, 300, np.uint16)}, seen_as)


@pytest.mark.parametrize(("question", "reason"), [
    (encode({"observation": np.zeros(7, np.float32)}), "this policy sees"),
    (encode({"observation": np.zeros(SHAPE, np.uint8)}), "this policy sees"),
    (encode({"observation": 3}), "no array"),
    (b"\xc1", "no msgpack"),
    (encode({"observation": seen(0), "policy_state": np.zeros(3, np.float32)}), "the policy_state"),
])
def test_a_bad_question_is_answered_with_its_reason(question: bytes, reason: str) -> None:
    with policy_server(served(**RECURRENT)) as (address, server):
        wire = dialled(address)
        with pytest.raises(ProtocolError, match=reason):
            decode(ask(wire, question))
        with pytest.raises(LostError):
            received(wire)
        assert server.counts.refused == 1


def test_a_policy_that_fails_ends_that_connection_alone() -> None:
    fails = Mock(side_effect=RuntimeError("no memory on the accelerator"))
    with policy_server(served(fails)) as (address, _):
        for _ in range(2):
            wire = dialled(address)
            with pytest.raises(ProtocolError, match="no memory on the accelerator"):
                decode(ask(wire, encode({"observation": seen(0)})))


def test_questions_that_wait_are_answered_in_one_batch() -> None:
    policy = Waiting()
    with policy_server(served(policy)) as (address, server), ThreadPoolExecutor(6) as pool:
        wires = [dialled(address) for _ in range(6)]

        def answer(action: int) -> int:
            answer = ask(wires[action], encode({"observation": seen(action % 3)}))
            return int(decode(answer)["actions"][0, 0])

        first = pool.submit(answer, 0)
        eventually(lambda: bool(policy.sizes), "the first batch has begun")
        others = [pool.submit(answer, action) for action in range(1, 6)]
        eventually(lambda: len(server._batcher._waiting) == 5, "the others wait")
        policy.go.set()
        assert [each.result(30.0) for each in (first, *others)] == [0, 1, 2, 0, 1, 2]
        for wire in wires:
            wire.close()
    assert policy.sizes == [1, 5]


def test_questions_of_clients_that_are_gone_are_cancelled() -> None:
    policy = Waiting()
    with policy_server(served(policy)) as (address, server):
        wires = [dialled(address) for _ in range(5)]
        wires[0].send(encode({"observation": seen(0)}))
        eventually(lambda: bool(policy.sizes), "the first batch has begun")
        for wire in wires[1:]:
            wire.send(encode({"observation": seen(0)}))
        eventually(lambda: len(server._batcher._waiting) == 4, "the others wait")
        for wire in wires[1:]:
            wire.close()
        eventually(lambda: server.counts.clients == 1, "they are gone")
        policy.go.set()
        received(wires[0])
        wires[0].close()
    assert policy.sizes == [1]


def test_a_large_question_leaves_in_pieces_and_arrives_whole() -> None:
    shape, beats = (1, 50_000), []
    question = np.arange(50_000, dtype=np.float32).reshape(shape)

    with policy_server(served(lambda seen: seen[:, 0, -3:], shape=shape)) as (address, _):
        wire = dialled(address)
        wire.send(encode({"observation": question}), lambda: beats.append(1))
        assert decode(received(wire))["values"].tolist() == [49_997.0, 49_998.0, 49_999.0]
        wire.close()
    assert len(beats) == 1 + question.nbytes // PIECE_BYTES


def test_a_link_that_has_become_slow_is_waited_for() -> None:
    dialer = WebsocketDialer("ws://127.0.0.1:9", None, MonotonicClock())
    dialer._open_s = 0.4
    for wanted in (0.8, 1.6):
        dialer.dial()
        with pytest.raises(LostError):
            dialer.outcome(10.0)
        assert dialer._open_s == wanted


@pytest.mark.parametrize(("given", "token"), [
    ("secret ", "secret"), ("", None), (" ", None), ("\u2603", UserError),
])
def test_a_token_is_what_can_be_sent(given: str, token: Any) -> None:
    if token is UserError:
        with pytest.raises(UserError, match="printable ASCII") as refusal:
            token_of({TOKEN_VARIABLE: given})
        assert given not in str(refusal.value)
    else:
        assert token_of({TOKEN_VARIABLE: given}) == token


def test_several_batches_at_once_where_the_policy_waits() -> None:
    policy = Waiting()
    with policy_server(served(policy), parallel=3) as (address, _), ThreadPoolExecutor(3) as pool:
        found = []
        for number in range(1, 4):
            client = WebsocketClientPolicy(address)
            found.append(pool.submit(client.infer, {"observation": seen(0)}))
            eventually(lambda number=number: len(policy.sizes) == number, "a batch has begun")
        policy.go.set()
        assert all("values" in each.result(30.0) for each in found)
    assert policy.sizes == [1, 1, 1]


def test_a_policy_that_hangs_does_not_keep_the_server() -> None:
    policy, clock = Waiting(), MonotonicClock()
    with policy_server(served(policy)) as (address, _):
        wires = [dialled(address) for _ in range(2)]
        for wire in wires:
            wire.send(encode({"observation": seen(0)}))
        eventually(lambda: bool(policy.sizes), "it has begun")
        left = clock.now()
    assert clock.now() - left < 30.0
    policy.go.set()


def test_an_address_that_others_reach_needs_a_token() -> None:
    with pytest.raises(UserError, match="RTAGENT_REMOTE_TOKEN"):
        listen("0.0.0.0", 0, None)
    listen("0.0.0.0", 0, TOKEN).close()
    with pytest.raises(UserError, match=r"cannot listen on 192\.0.*another --host or --port"):
        listen("192.0.2.1", 0, TOKEN)


def test_an_address_for_all_interfaces_is_reached_by_both_protocols() -> None:
    with listen("::", 0, TOKEN) as sock:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, sock.getsockname()[1]), 10.0).close()


def test_the_health_of_the_server_needs_no_token() -> None:
    refused = pytest.raises(websockets.InvalidStatus, match="200")
    with policy_server(served(), TOKEN) as (address, _), refused:
        connect(f"{address}/healthz")
