import json
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtagent.env.donkey.protocol import (
    LineDecoder,
    ObjectDecoder,
    ProtocolError,
    from_client,
    from_simulator,
    number,
)

TEXT = st.text(max_size=20)
FIELDS = st.dictionaries(
    TEXT, st.one_of(TEXT, st.booleans(), st.lists(TEXT, max_size=3), st.integers()), max_size=5
)
MESSAGES = st.lists(
    st.builds(lambda fields, kind: {**fields, "msg_type": kind}, FIELDS, TEXT), max_size=5
)


def fed(decoder, data, cuts):
    """The messages that a decoder makes of bytes in pieces."""
    found, at = [], 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        found += filter(None, decoder.feed(data[at:cut]))
        at = cut
    return found


@given(MESSAGES, st.lists(st.integers(0, 10_000), max_size=8))
def test_messages_survive_any_cut(messages, cuts):
    lines = LineDecoder()
    assert fed(lines, b"".join(map(from_simulator, messages)), cuts) == messages
    objects = ObjectDecoder()
    # From a client that escapes nothing, and puts white space between the objects.
    data = b" \n".join(json.dumps(each, ensure_ascii=False).encode() for each in messages)
    assert fed(objects, data, cuts) == messages
    assert lines.malformed == objects.malformed == 0


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_garbage_is_counted_and_never_raised(garbage, cuts):
    control = from_simulator({"msg_type": "control"})
    lines = LineDecoder()
    assert fed(lines, garbage + b"\n" + control, cuts)[-1] == {"msg_type": "control"}
    objects = ObjectDecoder()
    fed(objects, garbage, cuts)
    assert objects.malformed <= len(garbage)


def test_a_clients_stream_recovers_from_garbage_between_its_messages():
    decoder = ObjectDecoder()
    data = b'x}]{"msg_type":"a"}{"no":"type"}{broken}[1,2]"{"msg_type":"b"}'
    assert [each["msg_type"] for each in decoder.feed(data) if each] == ["a", "b"]
    assert decoder.malformed == 4


def test_braces_and_quotes_inside_strings_end_nothing():
    message = {"msg_type": "car_config", "car_name": 'a}{"\\"}\\'}
    decoder = ObjectDecoder()
    data = json.dumps(message).encode()
    found = [each for i in range(len(data)) for each in decoder.feed(data[i : i + 1]) if each]
    assert found == [message]


@pytest.mark.parametrize("decoder", [ObjectDecoder(100), LineDecoder(100)])
def test_what_never_ends_is_an_error(decoder):
    for _ in range(5):
        assert list(decoder.feed(b'{"msg_type":"control')) == []
    with pytest.raises(ProtocolError, match="more than 100 bytes"):
        list(decoder.feed(b'{"msg_type":"control'))


def test_deep_nesting_and_huge_numbers_are_malformed():
    decoder = ObjectDecoder()
    deep = b'{"msg_type":"a","x":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    huge = b'{"msg_type":"a","x":' + b"9" * 6000 + b"}"
    assert not any(decoder.feed(deep + huge))
    assert decoder.malformed == 2


def test_a_client_sends_numbers_as_strings():
    sent = from_client({"msg_type": "control", "steering": -0.5, "throttle": 1, "brake": 0.0})
    assert json.loads(sent) == {
        "msg_type": "control", "steering": "-0.5", "throttle": "1", "brake": "0.0"
    }
    assert not sent.endswith(b"\n")


def test_numbers_come_as_numbers_or_as_strings():
    assert number({"x": "1.5"}, "x") == number({"x": 1.5}, "x") == 1.5
    assert number({}, "x", 2.0) == 2.0
    for wrong in ("nan", "inf", "1e999", "", "1,5", None, True, [], {}, float("nan"), 10**400):
        with pytest.raises(ProtocolError, match="x = "):
            number({"x": wrong}, "x")
    with pytest.raises(ProtocolError):
        number({}, "x")


@pytest.mark.parametrize(
    ("decoder", "flood"),
    [
        (LineDecoder(), b'\n{"msg_type":"a"}\n\n!\n'),
        (ObjectDecoder(), b'{"msg_type":"a"}{"x":1}{}'),
    ],
    ids=["lines", "objects"],
)
def test_who_reads_can_stop_after_every_object_and_finds_the_rest(decoder, flood):
    found = next(decoder.feed(1000 * flood))
    while decoder.pending:
        count = 0
        for message in islice(decoder.feed(), 7):
            count += 1
            found = message or found
        assert count <= 7
    assert found == {"msg_type": "a"}
    assert list(decoder.feed(flood)).count({"msg_type": "a"}) == 1
