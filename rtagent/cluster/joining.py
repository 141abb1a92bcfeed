"""How a buffer node joins a learner, and which nodes may."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from rtagent import __version__
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.logs.shortening import LINE_CHARACTERS, short_text
from rtagent.memory.blueprint import Blueprint


@dataclass(frozen=True)
class Joining:
    """How a buffer node introduces itself. Picklable.

    Attributes:
        node: its name.
        config: that its daemon started with.
        blueprint: shapes.
        slots: number of frames that the learner shall keep for the node.
        generated: transitions that the node's world has generated so far.
        shipped: transitions that the node has sent so far, to any learner.
        version: of rtagent at the node.
    """

    node: str
    config: Config
    blueprint: Blueprint
    slots: int
    generated: int = 0
    shipped: int = 0
    version: str = __version__


@dataclass(frozen=True)
class Welcome:
    """The answer to a `Joining`. Picklable.

    Attributes:
        session: number of the session, which every call with shares names.
        begun: whether the learner has a state to learn on; if not, the node sends its own.
        share: transitions of a batch that the node is asked for.
        expected: with the replay at the learner, the next tick that it needs; 0 if it has no tick.
    """

    session: int
    begun: bool
    share: int
    expected: int = 0


def check_version(joining: Joining) -> None:
    """Raises UserError unless a node runs the rtagent of this process."""
    if joining.version != __version__:
        raise UserError(
            f"the learner has rtagent {__version__}, and {joining.node} has {joining.version}: "
            "install the same version everywhere"
        )


def check_same(joining: Joining, first: Joining) -> None:
    """Raises UserError unless two nodes can learn one network."""
    mine, theirs = joining.blueprint, first.blueprint
    learning = (joining.config.learning.algorithm, first.config.learning.algorithm)
    for what, own, other in (
        ("action space", str(mine.action_space), str(theirs.action_space)),
        ("frames", (mine.frame_shape, mine.frame_dtype), (theirs.frame_shape, theirs.frame_dtype)),
        ("frame stack", mine.frame_stack, theirs.frame_stack),
        ("network", mine.network, theirs.network),
        ("learning.algorithm", *learning),
        *(("tensor", *each) for each in zip_longest(mine.learned_tensors, theirs.learned_tensors)),
    ):
        if own != other:
            raise UserError(
                f"the learner has another {what} than {joining.node}: {_line(other)}, not "
                f"{_line(own)}; use the same policy and environment, or another learner "
                "(cluster.name)"
            )


def _line(value: object) -> str:
    """The value as text, cut to one line: a space may have many bounds."""
    return short_text(str(value), LINE_CHARACTERS)
