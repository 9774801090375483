"""The prefix of the names in C."""

from __future__ import annotations

import re

from edge_infer.errors import InputError

#: C99, section 6.4.1, the words of C++ that a header may be read with, the folder's targets and files, and Arduino's.
KEYWORDS = frozenset(
    (
        "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
        "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
        "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "and",
        "and_eq", "asm", "bitand", "bitor", "bool", "catch", "class", "compl", "const_cast", "delete", "dynamic_cast",
        "explicit", "export", "false", "friend", "mutable", "namespace", "new", "not", "not_eq", "operator", "or",
        "or_eq", "private", "protected", "public", "reinterpret_cast", "static_cast", "template", "this", "throw",
        "true", "try", "typeid", "typename", "using", "virtual", "wchar_t", "xor", "xor_eq", "main", "all", "test",
        "size", "qemu", "clean", "test_main", "host_main", "cortex_m4", "arduino", "Arduino",
    )
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_MAX_LENGTH = 40


def prefix_of(source: str, asked: str | None) -> str:
    """Return what the names of a model begin with.

    Args:
        source: The name of the model's file.
        asked: What `--prefix` says, or None.

    Raises:
        InputError: It is no name in C.
    """
    if asked is None:
        found = re.sub(r"\W+|_+", "_", source, flags=re.ASCII).strip("_").lower()[:_MAX_LENGTH].rstrip("_") or "model"
        return f"model_{found}" if found in KEYWORDS or not found[0].isalpha() else found
    if asked in KEYWORDS:
        raise InputError(
            f"--prefix `{asked}` has another meaning in C or in the Makefile", hint=f"--prefix {asked}_model"
        )
    if not _NAME.match(asked) or len(asked) > _MAX_LENGTH:
        raise InputError(
            f"--prefix `{asked[:_MAX_LENGTH]}` is no name in C: expected a letter, then letters, digits and `_`, "
            f"at most {_MAX_LENGTH}",
            hint=f"--prefix {prefix_of(asked, None)}",
        )
    return asked
