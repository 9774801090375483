"""A pushdown automaton over bytes: which bytes may follow, where a grammar nests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import ExecutionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: Ways in which a text may be read at once.
MAX_WAYS = 512


class Node:
    """A part of a grammar."""

    __slots__ = ()


class Bytes(Node):
    """One byte of a set."""

    __slots__ = ("mask",)

    def __init__(self, values: Iterable[int]) -> None:
        self.mask = 0
        for value in values:
            self.mask |= 1 << value


class Series(Node):
    """Parts one after the other."""

    __slots__ = ("parts",)

    def __init__(self, *parts: Node) -> None:
        self.parts = parts


class Choice(Node):
    """One of several parts."""

    __slots__ = ("parts",)

    def __init__(self, *parts: Node) -> None:
        self.parts = parts


class Repeat(Node):
    """A part several times; without a most, any number of times."""

    __slots__ = ("least", "less", "most", "part")

    def __init__(self, part: Node, least: int = 0, most: int | None = None) -> None:
        self.part, self.least, self.most = part, least, most
        self.less: Repeat | None = None

    def after_one(self) -> Repeat:
        """Return what may follow once the part was there."""
        if self.least == 0 and self.most is None:
            return self
        if self.less is None:
            most = None if self.most is None else self.most - 1
            self.less = Repeat(self.part, max(self.least - 1, 0), most)
        return self.less


class Later(Node):
    """A part that is made when it is first reached, so that a grammar may hold itself."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Node]) -> None:
        self._make = make
        self._made: Node | None = None

    def made(self) -> Node:
        """Return the part."""
        if self._made is None:
            self._made = self._make()
        return self._made


def literal(data: bytes) -> Node:
    """Return the part that is these bytes."""
    return Series(*(Bytes([byte]) for byte in data))


class Stack:
    """What is expected: a part, and then the rest. Equal stacks are one object."""

    __slots__ = ("_under", "node", "rest")

    def __init__(self, node: Node, rest: Stack | None) -> None:
        self.node, self.rest = node, rest
        self._under: dict[int, Stack] = {}

    def over(self, node: Node) -> Stack:
        """Return this stack with a part before it."""
        found = self._under.get(id(node))
        if found is None:
            found = self._under[id(node)] = Stack(node, self)
        return found


#: Ways to go on: each begins with one byte of a set. `END` stands for the end of the text.
State = frozenset[Stack]
_END_NODE = Node()


class Automaton:
    """Reads bytes by a grammar.

    Args:
        root: The grammar.
    """

    def __init__(self, root: Node) -> None:
        self._root = root  # parts are known by their identity, so the grammar must stay
        self._end = Stack(_END_NODE, None)
        self.start: State = self._opened([self._end.over(root)])

    def after(self, state: State, data: bytes) -> State:
        """Return the state after some bytes; an empty one where they do not fit.

        Raises:
            ExecutionError: The text can be read in too many ways.
        """
        for byte in data:
            rests = [
                stack.rest
                for stack in state
                if stack.rest is not None and isinstance(stack.node, Bytes) and stack.node.mask >> byte & 1
            ]
            if not rests:
                return frozenset()
            state = self._opened(rests)
        return state

    def may_end(self, state: State) -> bool:
        """Tell whether the text may be complete."""
        return self._end in state

    def must_end(self, state: State) -> bool:
        """Tell whether nothing may follow."""
        return state == {self._end}

    def _opened(self, stacks: Sequence[Stack]) -> State:
        """Follow parts down to the bytes that they begin with."""
        found: set[Stack] = set()
        seen: set[Stack] = set()
        waiting = list(stacks)
        while waiting:
            stack = waiting.pop()
            if stack in seen:
                continue
            seen.add(stack)
            if len(seen) > 16 * MAX_WAYS or len(found) > MAX_WAYS:
                raise ExecutionError(
                    f"the answer can be read by its schema in more than {MAX_WAYS} ways",
                    hint="use fewer alternatives that begin alike",
                )
            node, rest = stack.node, stack.rest
            if isinstance(node, Bytes) or rest is None:
                found.add(stack)
            elif isinstance(node, Series):
                for part in reversed(node.parts):
                    rest = rest.over(part)
                waiting.append(rest)
            elif isinstance(node, Choice):
                waiting += [rest.over(part) for part in node.parts]
            elif isinstance(node, Later):
                waiting.append(rest.over(node.made()))
            elif isinstance(node, Repeat):
                if node.least == 0:
                    waiting.append(rest)
                if node.most is None or node.most > 0:
                    waiting.append(rest.over(node.after_one()).over(node.part))
        return frozenset(found)
