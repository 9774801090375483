"""The reference pages of the public names: Python from docstrings, JavaScript from the declarations of `tsc`."""

from __future__ import annotations

import functools
import inspect
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import edge_infer
import edge_infer_converters

if TYPE_CHECKING:
    from collections.abc import Iterator

WEB = Path(__file__).parents[1] / "web"
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):$")
_DECLARATION = re.compile(
    r"^(/\*\*(?:(?!\*/).)*\*/\n)?export (?:declare )?((?:type|function|class|const) (\w+).*?)"
    r"(?=^(?:/\*\*|export|//)|\Z)",
    re.MULTILINE | re.DOTALL,
)
_MEMBER = re.compile(
    r"^(    /\*\*(?:(?!\*/).)*\*/\n)?    ((?:static |get |readonly )*(\w+)[^\n]*\n(?:     [^\n]*\n|    \}[^\n]*\n)*)",
    re.MULTILINE | re.DOTALL,
)
_PRIVATE = re.compile(r"(    /\*\*(?:(?!\*/).)*\*/\n)?    (?:#private|constructor|private )[^\n]*\n", re.DOTALL)
_COMMENT = re.compile(r"/\*\*(?:(?!\*/).)*\*/", re.DOTALL)
_ITEM = re.compile(r"^    (\S[^:]*): (.*)$")


def python_page() -> str:
    """Return the public names of the two Python packages: signature and docstring of each."""
    parts = ["# Python\n"]
    for package in (edge_infer, edge_infer_converters):
        parts.append(f"## `{package.__name__}`\n")
        for name in package.__all__:
            parts += _python_entry(name, getattr(package, name))
    return _tidy(parts)


def _tidy(parts: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _python_entry(name: str, found: Any) -> Iterator[str]:
    yield f"### `{name}`\n"
    if inspect.isclass(found) and issubclass(found, Exception):
        yield f"{_docstring(found)}Its place in the tree: [errors](errors.md).\n"
        return
    yield _python_signature(name, found)
    yield _docstring(found)
    for member, value in vars(found).items() if inspect.isclass(found) else ():
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if member.startswith("_") or not inspect.getdoc(plain):
            continue
        if inspect.isfunction(plain):
            yield f"#### `{name}.{member}`\n"
            yield _python_signature(f"{name}.{member}", getattr(found, member))
            yield _docstring(plain)
        elif isinstance(plain, property | functools.cached_property):
            yield f"#### `{name}.{member}`\n\n{_docstring(plain)}"


class _Annotation(str):
    """An annotation that a signature shows without quotes."""

    __repr__ = str.__str__


def _python_signature(name: str, found: Any) -> str:
    """Return how a function is called, or a class made; nothing for a class whose objects come from elsewhere."""
    signature = inspect.signature(found)
    values = [one for one in signature.parameters.values() if one.name != "self"]
    is_made_elsewhere = "; made by" in (found.__doc__ or "") or any(str(one.annotation)[:1] == "_" for one in values)
    if inspect.isclass(found) and is_made_elsewhere:
        return ""
    values = [one.replace(annotation=_Annotation(one.annotation)) for one in values]
    returned = signature.return_annotation
    is_plain = returned in (inspect.Signature.empty, "None", None)
    signature = inspect.Signature(
        values, return_annotation=inspect.Signature.empty if is_plain else _Annotation(returned)
    )
    text = str(signature).replace("<factory>", "...")
    if len(name + text) > 100:
        head, _, tail = text.replace("(", "(\n    ", 1).rpartition(")")
        text = re.sub(r", (?=(\w+: |\*))", ",\n    ", head) + f",\n){tail}"
    return f"```python\n{name}{text}\n```\n"


def _docstring(found: Any) -> str:
    """Return a docstring of Google's style with its sections as lists and its examples as code."""
    lines: list[str] = []
    in_section = False
    for line in (inspect.getdoc(found) or "").replace("  # doctest: +SKIP", "").splitlines():
        if section := _SECTION.match(line):
            in_section = True
            lines += [f"**{section[1].replace('Args', 'Arguments')}**", ""]
        elif in_section and (item := _ITEM.match(line)):
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif in_section and line.startswith("        "):
            lines.append(f"  {line.strip()}")
        else:
            in_section = in_section and line.startswith("    ")
            lines.append(line.strip() if in_section else line)
    text = re.sub(
        r"((?:^(?:>>> |\.\.\. ).*\n(?:^(?!>>> ).+\n)*)+)",
        r"```python\n\1```\n",
        "\n".join(lines) + "\n",
        flags=re.MULTILINE,
    )
    return f"{text}\n"


def javascript_page() -> str:
    """Return what `web/src/index.js` exports, then the types that its signatures name."""
    with tempfile.TemporaryDirectory() as folder:
        compiler = WEB / "node_modules/.bin/tsc"
        subprocess.run([compiler, "-p", "tsconfig.types.json", "--outDir", folder], cwd=WEB, check=True)
        index = Path(folder).resolve() / "index.d.ts"
        declared = [name for name, code in _declarations(index).items() if not code[1].startswith("type ")]
        (gathered,) = re.findall(r"^export \{ (.*) \};$", index.read_text("utf-8"), re.MULTILINE)
        # What other modules define comes first, such as `load`; the classes come last.
        names = sorted([*gathered.split(", "), *declared], key=lambda name: (name[0].isupper(), name in declared))
        wanted = [(index, name) for name in names]
        entries = dict(_reached(wanted))
    functions = [text for name, (text, is_type) in entries.items() if not is_type]
    types = [entries[name][0] for name in sorted(entries) if entries[name][1]]
    return _tidy(["# JavaScript\n", *functions, "## Types\n", *types])


def _declarations(path: Path) -> dict[str, tuple[str, str]]:
    """Return each name that a `.d.ts` exports with its comment and its declaration."""
    text = re.sub(r"^import .*\n|^/\*\* @typedef [^\n]*\n", "", path.read_text("utf-8"), flags=re.MULTILINE)
    found = {}
    for one in _DECLARATION.finditer(text):
        comment = (one[1] or "") if one.start() else ""  # the first comment is that of the file
        found[one[3]] = (comment, one[2].strip())
    return found


def _reached(wanted: list[tuple[Path, str]]) -> Iterator[tuple[str, tuple[str, bool]]]:
    """Render the wanted declarations, and whatever types they name in turn."""
    seen: set[tuple[Path, str]] = set()
    while wanted:
        path, name = wanted.pop(0)
        comment, code = _declarations(path).get(name, ("", ""))
        alias = re.match(r'type \w+ = import\("([^"]+)"\)\.(\w+);', code)
        if alias and alias[2] == name:
            wanted.insert(0, (_declared_in(path, alias[1]), name))
            continue
        imported = re.search(
            rf'^import \{{ (?:.*, )?{name}(?:, .*)? \}} from "([^"]+)"', path.read_text("utf-8"), re.MULTILINE
        )
        if not code and imported:
            wanted.insert(0, (_declared_in(path, imported[1]), name))
        if not code or (path, name) in seen:
            continue
        title = f"{name} ({path.name.removesuffix('.d.ts')}.js)" if name in {known for _, known in seen} else name
        seen.add((path, name))
        public = _PRIVATE.sub("", code)
        yield title, (_javascript_entry(title, comment, public), code.startswith("type "))
        bare = _COMMENT.sub("", public)
        words = set(re.findall(r"\w+", bare))
        wanted += [(_declared_in(path, file), named) for file, named in re.findall(r'import\("([^"]+)"\)\.(\w+)', bare)]
        for names, file in re.findall(r'^import \{ (.*?) \} from "([^"]+)"', path.read_text("utf-8"), re.MULTILINE):
            wanted += [(_declared_in(path, file), named) for named in names.split(", ") if named in words]
        local = _declarations(path)
        wanted += [
            (path, named) for named in local if named in words and local[named][1].startswith(("type ", "class "))
        ]


def _declared_in(path: Path, module: str) -> Path:
    return (path.parent / re.sub(r"\.js$", ".d.ts", module)).resolve()


def _javascript_entry(name: str, comment: str, code: str) -> str:
    shown = re.sub(r'import\("[^"]+"\)\.', "", code).removeprefix("function ")
    level = "###" if code.startswith("type ") else "##"
    if not code.startswith("class "):
        return f"{level} `{name}`\n\n```ts\n{shown}\n```\n\n{_jsdoc(comment)}"
    parts = [f"{level} `{name}`\n\n{_jsdoc(comment)}"]
    for said, line, member in _MEMBER.findall(shown):
        parts.append(f"### `{name}.{member}`\n\n```ts\n{inspect.cleandoc(line)}\n```\n\n{_jsdoc(said)}")
    return "\n".join(parts)


def _jsdoc(comment: str) -> str:
    """Return a comment as Markdown: its text, its parameters as a list."""
    text = re.sub(r"^\s*(/\*\*|\*/|\*) ?|\s*\*/$", "", comment.strip(), flags=re.MULTILINE).strip()
    text = re.sub(r"^@(?:template|typedef) .*\n?", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(@\w+ )\{(?:[^{}]|\{[^{}]*\})*\} ?", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r"^@param \[?([\w.]+)(?:\s*=[^\]]*)?\]? *", r"- `\1`: ", text, flags=re.MULTILINE)
    text = re.sub(r"^- (`[\w.]+`): *$\n?", "", text, flags=re.MULTILINE)
    text = re.sub(r"^@returns *$\n?", "", text, flags=re.MULTILINE)
    text = re.sub(r"^@(returns|throws) +", lambda tag: f"- *{tag[1]}* ", text, flags=re.MULTILINE)
    return f"{text.strip()}\n" if text.strip() else ""
