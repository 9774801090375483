"""What a search computes, in numpy, in our kernel, or in plain Python: all three give the same bits.

- A vector of the metric `cosine` is divided by its length first: the root of the sum of the squares, added up in double
  precision from the first to the last, and each quotient rounded to float32.
- An 8-bit row is `round(x / scale)` with `scale = max|x| / 127` in float32, halves to even. A query is encoded alike.
- A row's score is `float32(dot) * scale` in float32, where `dot` is the whole number that the two 8-bit rows give. The
  query's own scale changes no order; `Query.factor` has it, for the score that a caller sees.
- A 1-bit code has a bit for each number that is above the segment's mean, the first number in the lowest bit. Rows of
  codes are filled up with zeros to whole 64 bits.
- Equal scores are ordered by the lower row. The rows of a segment lie in the order of their ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol

    #: A score, and the row that has it.
    Scored = tuple[float, int]

    class Codes(Protocol):
        """What is needed of a segment."""

        count: int
        dimension: int
        rows: memoryview
        scales: memoryview
        bits: memoryview
        floats: memoryview | None

    class Arithmetic(Protocol):
        """One way to compute. Rows are what `rows` returned, and nothing else."""

        name: str

        def rows(self, vectors: Any, dimension: int) -> Any:
            """Take vectors.

            Raises:
                InputError: One is of another length, or has a number that is not finite in float32.
            """
            ...

        def pick(self, rows: Any, order: Sequence[int]) -> Any:
            """Return some of the rows, in an order."""
            ...

        def normalize(self, rows: Any) -> Any:
            """Divide each row by its length.

            Raises:
                InputError: A row is zero.
            """
            ...

        def encode(self, rows: Any) -> tuple[bytes, bytes]:
            """Return the 8-bit rows and their scales as float32."""
            ...

        def mean(self, rows: Any) -> bytes:
            """Return the mean of the rows as float32."""
            ...

        def codes(self, rows: Any, mean: bytes | memoryview) -> bytes:
            """Return the 1-bit codes."""
            ...

        def floats(self, rows: Any, kind: str) -> bytes:
            """Return the rows as `f16` or `f32`.

            Raises:
                InputError: A number is too large for float16.
            """
            ...

        def decoded(self, codes: bytes, scales: bytes, kept: bytes, kind: str, dimension: int) -> Any:
            """Return rows again: from the vectors that were kept, or from 8-bit rows where none were.

            Args:
                codes: The 8-bit rows.
                scales: Their scales.
                kept: The rows as `kind` says; nothing for `int8`.
                kind: `int8`, `f16` or `f32`.
                dimension: The numbers of a row.
            """
            ...

        def each(self, tasks: Sequence[Callable[[], list[Any]]], work: int) -> list[list[Any]]:
            """Do tasks, at once where that is quicker, and return what each gives.

            Args:
                tasks: The tasks.
                work: How many bytes they compare in all.
            """
            ...

        def spans(self, count: int, row_bytes: int, work: int) -> list[tuple[int, int]]:
            """Cut the rows of a segment into spans, which are scanned at once where that is quicker.

            Args:
                count: How many rows it has.
                row_bytes: The bytes of a row.
                work: How many bytes the search compares in all.

            Returns:
                The first row of each span, and the one behind its last.
            """
            ...

        def scan(
            self,
            codes: Codes,
            query: Query,
            k: int,
            allowed: bytes | None,
            picked: Sequence[int] | None,
            span: tuple[int, int],
        ) -> list[Scored]:
            """Return the best rows by their 8-bit codes, the best first.

            Args:
                codes: The segment.
                query: What is looked for.
                k: The most that are returned.
                allowed: For each row a byte, 0 where it is left out; None for all.
                picked: The only rows to look at, rising; None for those of the span.
                span: The first row to look at, and the one behind the last.
            """
            ...

        def nearest(self, codes: Codes, code: bytes, count: int, allowed: bytes | None) -> Sequence[int]:
            """Return the rows whose 1-bit codes differ least, in rising order; among equals the first rows."""
            ...

        def exact(self, codes: Codes, query: Query, picked: Sequence[int]) -> list[float]:
            """Return the scores of some rows by their floats, added up in double precision from first to last."""
            ...


class OneThread:
    """The part of an `Arithmetic` that computes on one thread."""

    def each(self, tasks: Sequence[Callable[[], list[Any]]], work: int) -> list[list[Any]]:  # noqa: ARG002
        """Do tasks one after the other, as `Arithmetic` says."""
        return [task() for task in tasks]

    def spans(self, count: int, row_bytes: int, work: int) -> list[tuple[int, int]]:  # noqa: ARG002
        """Leave the rows of a segment in one span, as `Arithmetic` says."""
        return [(0, count)]


class OfKernels:
    """The part of an `Arithmetic` that kernels leave to another one, such as encoding rows."""

    name = "kernel"

    def __init__(self, other: Arithmetic) -> None:
        self.rows = other.rows
        self.pick = other.pick
        self.normalize = other.normalize
        self.encode = other.encode
        self.mean = other.mean
        self.codes = other.codes
        self.floats = other.floats
        self.decoded = other.decoded
        self.exact = other.exact


class Query(NamedTuple):
    """A query, encoded.

    Attributes:
        floats: The vector as float32; of length 1 where the metric is `cosine`.
        codes: Its 8-bit row.
        factor: What a score is multiplied by.
    """

    floats: memoryview
    codes: bytes
    factor: float


def wrong_length(number: int, got: int, dimension: int) -> InputError:
    """Return the error of a vector that does not fit the index."""
    return InputError(
        f"vector {number} has {got} numbers, the index takes {dimension}",
        hint="use the model that the index was built by, or build another index",
        expected=dimension,
        got=got,
    )


def not_finite(number: int) -> InputError:
    """Return the error of a vector with NaN or an infinity."""
    return InputError(
        f"vector {number} has a number that is not finite in float32", hint="leave the vector out", row=number
    )


def no_direction(number: int) -> InputError:
    """Return the error of a zero vector where the angle counts."""
    return InputError(
        f"vector {number} is zero and has no direction", hint='leave it out, or use metric="dot"', row=number
    )


def too_large(number: int) -> InputError:
    """Return the error of a number that float16 cannot hold."""
    return InputError(f"vector {number} has a number that float16 cannot hold", hint='use rows="f32"', row=number)
