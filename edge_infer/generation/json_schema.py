"""JSON Schema to a grammar of bytes: the texts that the automaton accepts are valid by the schema.

Objects are written with the properties that the schema names, in its order, so not every valid text is accepted. A
keyword that the grammar cannot keep is refused by name; annotations such as `description` and `format` are passed over.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

from edge_infer.errors import InputError, listed
from edge_infer.generation.automaton import Automaton, Bytes, Choice, Later, Node, Repeat, Series, literal

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 65_536
_MAX_DEPTH = 64
_MAX_COUNT = 65_536
_ANNOTATIONS = {
    "$anchor", "$comment", "$defs", "$id", "$schema", "contentEncoding", "contentMediaType", "default", "definitions",
    "deprecated", "description", "discriminator", "example", "examples", "format", "readOnly", "strict", "title",
    "writeOnly",
}  # fmt: skip
_BY_TYPE = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"minLength", "maxLength"},
}
_TYPES = ("string", "number", "integer", "boolean", "null", "object", "array")

_HEX = Bytes(b"0123456789abcdefABCDEF")
_TAIL = Bytes(range(0x80, 0xC0))
#: One character of a string: JSON's escapes, and the well-formed sequences of Unicode's table 3-7.
_CHARACTER = Choice(
    Bytes(byte for byte in range(0x20, 0x80) if byte not in b'"\\'),
    Series(Bytes(b"\\"), Choice(Bytes(b'"\\/bfnrt'), Series(Bytes(b"u"), _HEX, _HEX, _HEX, _HEX))),
    Series(Bytes(range(0xC2, 0xE0)), _TAIL),
    Series(Bytes(b"\xe0"), Bytes(range(0xA0, 0xC0)), _TAIL),
    Series(Bytes([*range(0xE1, 0xED), 0xEE, 0xEF]), _TAIL, _TAIL),
    Series(Bytes(b"\xed"), Bytes(range(0x80, 0xA0)), _TAIL),
    Series(Bytes(b"\xf0"), Bytes(range(0x90, 0xC0)), _TAIL, _TAIL),
    Series(Bytes(range(0xF1, 0xF4)), _TAIL, _TAIL, _TAIL),
    Series(Bytes(b"\xf4"), Bytes(range(0x80, 0x90)), _TAIL, _TAIL),
)
_QUOTE = Bytes(b'"')
#: A space, or a new line with an indent: a model can write no endless space.
_SPACE = Choice(Series(), Bytes(b" "), Series(Bytes(b"\n"), Repeat(Bytes(b" \t"), 0, 20)))
_DIGIT = Bytes(b"0123456789")
_INTEGER = Series(Repeat(Bytes(b"-"), 0, 1), Choice(Bytes(b"0"), Series(Bytes(b"123456789"), Repeat(_DIGIT))))
_NUMBER = Series(
    _INTEGER,
    Repeat(Series(Bytes(b"."), Repeat(_DIGIT, 1)), 0, 1),
    Repeat(Series(Bytes(b"eE"), Repeat(Bytes(b"+-"), 0, 1), Repeat(_DIGIT, 1)), 0, 1),
)
_STRING = Series(_QUOTE, Repeat(_CHARACTER), _QUOTE)
_COMMA = Series(_SPACE, Bytes(b","), _SPACE)
_ANY = Later(lambda: _any())
ANY_OBJECT = Later(lambda: _map(_ANY))


def _any() -> Node:
    words = (literal(word) for word in (b"true", b"false", b"null"))
    return Choice(_STRING, _NUMBER, *words, ANY_OBJECT, _list(_ANY))


def _map(value: Node) -> Node:
    member = Series(_STRING, _SPACE, Bytes(b":"), _SPACE, value)
    return _enclosed(b"{", Repeat(Series(member, Repeat(Series(_COMMA, member))), 0, 1), b"}")


def _list(item: Node, least: int = 0, most: int | None = None) -> Node:
    if most == 0:
        return _enclosed(b"[", Series(), b"]")
    more = Repeat(Series(_COMMA, item), max(least - 1, 0), None if most is None else most - 1)
    return _enclosed(b"[", Repeat(Series(item, more), min(least, 1), 1), b"]")


def _enclosed(begin: bytes, inner: Node, end: bytes) -> Node:
    return Series(Bytes(begin), _SPACE, inner, _SPACE, Bytes(end))


def json_grammar(schema: Any) -> Node:
    """Return the grammar of a schema.

    Args:
        schema: A JSON Schema: an object, or True for any value.

    Raises:
        InputError: It is too large, is no schema, or has a keyword that the grammar cannot keep.
    """
    try:
        size = len(json.dumps(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the schema is not JSON: {error}", option="response_format") from error
    if size > MAX_BYTES:
        _refuse(f"has {size} bytes, at most {MAX_BYTES} are read")
    root = _Schemas(schema).root()
    if not Automaton(root).start:
        _refuse("refers to itself without end, so that no text is valid by it")
    return Series(_SPACE, root)


def _refuse(what: str, hint: str = "") -> NoReturn:
    raise InputError(f"the schema {what}", hint=hint, option="response_format")


class _Schemas:
    """Makes the grammars of the parts of a schema."""

    def __init__(self, schema: Any) -> None:
        self._whole = schema
        self._named: dict[str, Node] = {}

    def root(self) -> Node:
        return self._of(self._whole, "#", 0)

    def _of(self, schema: Any, where: str, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            _refuse(f"is nested more than {_MAX_DEPTH} deep at `{where[:80]}`")
        if schema is True or schema == {}:
            return _ANY
        if not isinstance(schema, dict):
            _refuse(f"has {str(schema)[:60]!r} at `{where}`, expected an object")
        asserted = set(schema) - _ANNOTATIONS
        for keyword, make in (("$ref", self._reference), ("enum", self._values), ("const", self._values)):
            if keyword in schema:
                self._alone(asserted - {"type"}, keyword, where)
                return make(schema, where, depth)
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in schema:
                self._alone(asserted - {"type"}, keyword, where)
                return self._some(schema[keyword], keyword, where, depth)
        return self._typed(schema, asserted, where, depth)

    def _alone(self, asserted: set[str], keyword: str, where: str) -> None:
        if asserted != {keyword}:
            others = listed(sorted(asserted - {keyword}))
            _refuse(f"has {others} beside `{keyword}` at `{where}`, which is not supported")

    def _typed(self, schema: Mapping[str, Any], asserted: set[str], where: str, depth: int) -> Node:
        types = schema.get("type")
        if types is None:
            types = [kind for kind, names in _BY_TYPE.items() if names & asserted] or list(_TYPES)
            if len(types) == 1 and asserted - _BY_TYPE[types[0]]:
                _refuse(f"has {listed(sorted(asserted - _BY_TYPE[types[0]]))} at `{where}`, which is not supported")
        types = [types] if isinstance(types, str) else types
        if not isinstance(types, list) or not types or not all(one in _TYPES for one in types):
            _refuse(f"has the type {str(types)[:60]} at `{where}`", f"choose from {listed(list(_TYPES))}")
        known = {"type"}.union(*(_BY_TYPE.get(one, set()) for one in types))
        if asserted - known:
            _refuse(f"has {listed(sorted(asserted - known))} at `{where}`, which is not supported")
        parts = [self._of_type(one, schema, where, depth) for one in types]
        return parts[0] if len(parts) == 1 else Choice(*parts)

    def _of_type(self, kind: str, schema: Mapping[str, Any], where: str, depth: int) -> Node:
        if kind == "object":
            return self._object(schema, where, depth)
        if kind == "array":
            return self._array(schema, where, depth)
        if kind == "string":
            least, most = self._range(schema, "minLength", "maxLength", where)
            return Series(_QUOTE, Repeat(_CHARACTER, least, most), _QUOTE)
        if kind == "boolean":
            return Choice(literal(b"true"), literal(b"false"))
        return {"number": _NUMBER, "integer": _INTEGER, "null": literal(b"null")}[kind]

    def _range(self, schema: Mapping[str, Any], low: str, high: str, where: str) -> tuple[int, int | None]:
        least, most = schema.get(low, 0), schema.get(high)
        for name, value in ((low, least), (high, most)):
            if value is not None and (type(value) is not int or not 0 <= value <= _MAX_COUNT):
                _refuse(f"has {value!r} for `{name}` at `{where}`, expected 0 to {_MAX_COUNT}")
        if most is not None and most < least:
            _refuse(f"has `{low}` above `{high}` at `{where}`")
        return least, most

    def _array(self, schema: Mapping[str, Any], where: str, depth: int) -> Node:
        least, most = self._range(schema, "minItems", "maxItems", where)
        item = _ANY
        if "prefixItems" in schema:
            _refuse(f"has `prefixItems` at `{where}`, which is not supported", "use `items`")
        if "items" in schema:
            if schema["items"] is False:
                if least:
                    _refuse(f"allows no items at `{where}`, and wants {least}")
                return _list(_ANY, 0, 0)
            return _list(self._of(schema["items"], f"{where}/items", depth + 1), least, most)
        return _list(item, least, most)

    def _object(self, schema: Mapping[str, Any], where: str, depth: int) -> Node:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict):
            _refuse(f"has properties at `{where}` that are not an object")
        if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
            _refuse(f"has `required` at `{where}` that is not a list of names")
        more = schema.get("additionalProperties", True)
        others = [name for name in required if name not in properties]
        if others and more is False:
            _refuse(f"requires {listed(others)} at `{where}`, which its properties lack")
        named = {**properties, **dict.fromkeys(others, more)}
        if not named:
            if more is False:
                return _enclosed(b"{", Series(), b"}")
            return _map(self._of(more, f"{where}/additionalProperties", depth + 1))
        members = []
        for name, value in named.items():
            key = literal(json.dumps(name, ensure_ascii=False).encode())
            made = self._of(value, f"{where}/properties/{name}", depth + 1)
            members.append((Series(key, _SPACE, Bytes(b":"), _SPACE, made), name in required))
        # From the last property on: what may follow where none was written yet, and where one was.
        first: Node = Series()
        later: Node = Series()
        for member, is_required in reversed(members):
            written_first, written_later = Series(member, later), Series(_COMMA, member, later)
            first = written_first if is_required else Choice(written_first, first)
            later = written_later if is_required else Choice(written_later, later)
        return _enclosed(b"{", first, b"}")

    def _values(self, schema: Mapping[str, Any], where: str, depth: int) -> Node:
        del depth
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        if not isinstance(values, list) or not values:
            _refuse(f"has an `enum` at `{where}` that is not a list of values")
        written = dict.fromkeys(json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in values)
        return Choice(*(literal(one.encode()) for one in written))

    def _some(self, schemas: Any, keyword: str, where: str, depth: int) -> Node:
        if not isinstance(schemas, list) or not schemas:
            _refuse(f"has `{keyword}` at `{where}` that is not a list of schemas")
        if keyword == "allOf" and len(schemas) > 1:
            _refuse(f"has several schemas in `allOf` at `{where}`, which is not supported", "write them as one")
        return Choice(*(self._of(one, f"{where}/{keyword}/{at}", depth + 1) for at, one in enumerate(schemas)))

    def _reference(self, schema: Mapping[str, Any], where: str, depth: int) -> Node:
        name = schema["$ref"]
        if not isinstance(name, str) or not (name == "#" or name.startswith("#/")):
            _refuse(f"refers to {str(name)[:60]!r} at `{where}`", 'only "#/..." of the same schema is read')
        if name not in self._named:
            found = self._whole
            for step in name.split("/")[1:]:
                step = step.replace("~1", "/").replace("~0", "~")
                if not isinstance(found, dict) or step not in found:
                    _refuse(f"refers to `{name[:60]}` at `{where}`, which it does not have")
                found = found[step]
            made: list[Node] = []
            self._named[name] = Later(lambda: made[0])
            made.append(self._of(found, name, depth + 1))
        return self._named[name]
