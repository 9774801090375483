"""Documents and bytes that say something else than they did: what a reader of ours must survive."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

NUMBERS = [
    -(2**70),
    -(2**53),
    -1,
    0,
    1,
    255,
    256,
    2**20,
    2**22 + 1,
    2**31,
    2**32,
    2**44,
    2**53 - 1,
    2**53,
    2**63,
    2**70,
]
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(NUMBERS),
    st.floats(),
    st.text(max_size=10),
    st.sampled_from(["", "..", "../x", "/x", "\ud800", "0" * 64, "manifest.json", "\0"]),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


@st.composite
def mutated(draw: st.DrawFn, document: Any) -> Any:
    """Draw a document with up to three places that say something else, are missing or are there twice."""
    made = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        places: list[tuple[Any, Any]] = []
        left: list[Any] = [made]
        while left:
            one = left.pop()
            keys = range(len(one)) if isinstance(one, list) else list(one) if isinstance(one, dict) else ()
            places += [(one, key) for key in keys]
            left += [one[key] for key in keys]
        if not places:
            return made
        holder, key = draw(st.sampled_from(places))
        how = draw(st.sampled_from(["other", "other", "number", "gone", "twice"]))
        if how == "gone":
            del holder[key]
        elif how == "twice" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        else:
            holder[key] = draw(st.sampled_from(NUMBERS) if how == "number" else VALUES)
    return made


@st.composite
def edited(draw: st.DrawFn, data: bytes) -> bytes:
    """Draw bytes with up to four places that were overwritten, cut out, put in or copied from elsewhere."""
    made = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(made)))
        length = draw(st.sampled_from([1, 1, 2, 4, 8, 64]))
        how = draw(st.sampled_from(["write", "write", "cut", "insert", "copy", "end"]))
        if how == "cut":
            del made[at : at + length]
        elif how == "end":
            del made[at:]
        elif how == "copy":
            source = draw(st.integers(0, len(made)))
            made[at:at] = made[source : source + length]
        else:
            value = draw(
                st.binary(min_size=length, max_size=length) | st.just(b"\xff" * length) | st.just(bytes(length))
            )
            made[at : at + (length if how == "write" else 0)] = value
    return bytes(made)


def with_last_byte_changed(data: bytes) -> bytes:
    """Return the data with another last byte, whatever the last byte was."""
    return data[:-1] + bytes([data[-1] ^ 1])
