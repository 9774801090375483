"""A conversation to the text of a prompt, by the model's chat template."""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from edge_infer.errors import BundleError, EdgeInferError, InputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The longest template.
MAX_SOURCE = 256 * 1024
#: Names in a template that callers cannot give: what it is told in any case, and the arguments of `render`.
_TAKEN = frozenset({"documents", "messages", "now", "self", "strftime_now", "tools"})
_TIME_FORMAT = re.compile(r"(?:[^%]|%[-_]?[A-Za-z%]){0,200}")


class Template(Protocol):
    """What renders conversations: `ChatTemplate`, or in a page without jinja2 `backends.web.template.PageTemplate`."""

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None, **values: Any
    ) -> str:
        """Write the prompt of a conversation."""
        ...


def is_of_page() -> bool:
    """Whether the page's JavaScript renders templates, as Python here has no jinja2."""
    return sys.platform == "emscripten" and find_spec("jinja2") is None


def open_template(source: str, special_tokens: Mapping[str, str]) -> Template:
    """Open a chat template with what is here: jinja2, or the page's JavaScript.

    Raises:
        UnsupportedError: The package jinja2 is not installed.
        BundleError: It is no template, or longer than 256 KiB.
    """
    if is_of_page():
        from edge_infer.backends.web.template import PageTemplate

        return PageTemplate(source, special_tokens)
    return ChatTemplate(source, special_tokens)


class ChatTemplate:
    """A chat template of the Hugging Face Hub, set up as transformers does (`utils/chat_template_utils.py`).

    Blocks are trimmed, `tojson` escapes nothing, `raise_exception` and `strftime_now` are there. Rendering has limits:
    see `edge_infer.generation.template_limits`. It may be used by several threads.

    Args:
        source: The template, in Jinja2's language.
        special_tokens: The texts of special tokens by name, such as `bos_token`.

    Raises:
        UnsupportedError: The package jinja2 is not installed.
        BundleError: It is no template, or longer than 256 KiB.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None) -> None:
        if len(source) > MAX_SOURCE:
            raise BundleError(f"the chat template has {len(source)} characters, at most {MAX_SOURCE} are read")
        try:
            from jinja2 import TemplateError

            from edge_infer.generation.template_limits import Budget, LimitedEnvironment
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                "a chat template needs the package jinja2", hint="pip install 'edge-infer[text]'"
            ) from error
        self._special_tokens = dict(special_tokens or {})
        self._lock = Lock()
        self._new_budget = Budget
        self._environment = LimitedEnvironment()
        self._environment.filters["tojson"] = self._to_json
        self._environment.globals["raise_exception"] = _raise_exception
        try:
            self._template = self._environment.compiled(source)
        except (TemplateError, RecursionError, MemoryError, SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            where = "" if line is None else f", line {line}"
            raise BundleError(f"the chat template cannot be read{where}: {_said(error)}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        now: datetime | None = None,
        **values: Any,
    ) -> str:
        """Write the prompt of a conversation.

        Args:
            messages: Each with `role` and `content`, and what else the template reads.
            tools: Functions that the model may call, as JSON Schema describes them.
            add_generation_prompt: Whether the prompt ends where the answer begins.
            now: The time that a template may ask for; None for the clock's.
            values: More that the template reads, such as `enable_thinking`.

        Raises:
            InputError: The template refuses the conversation.
            BundleError: The template is wrong, or takes too long or too much memory.
        """
        moment = now or datetime.now().astimezone()
        given = {
            **self._special_tokens,
            **values,
            "messages": list(messages),
            "tools": tools,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            "strftime_now": lambda form: _written(moment, form),
        }
        with self._lock:
            self._environment.budget = self._new_budget()
            try:
                return str(self._template.render(given))
            except EdgeInferError:
                raise
            except RecursionError as error:
                raise BundleError("the chat template calls itself without end") from error
            except Exception as error:  # a template may raise what any Python may
                raise BundleError(
                    f"the chat template failed: {_said(error)}", hint="check the roles and contents of the messages"
                ) from error

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        if isinstance(indent, int) and indent > 16:
            raise BundleError(f"the chat template writes JSON with an indent of {indent}, at most 16 are allowed")
        self._environment.budget.step()
        made = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        self._environment.budget.pay(made)
        return made


def checked_values(values: Mapping[str, Any], option: str) -> dict[str, Any]:
    """Return what a caller lets a template read beside the conversation.

    Args:
        values: By name.
        option: Where they were given.

    Raises:
        InputError: A name is taken.
    """
    for name in values:
        if name in _TAKEN:
            raise InputError(
                f"`{option}` has `{name}`, which the template has already", hint="leave it out", option=option
            )
    return dict(values)


def _written(moment: datetime, form: Any) -> str:
    if not isinstance(form, str) or not _TIME_FORMAT.fullmatch(form):
        raise BundleError(f"the chat template writes the time as {str(form)[:40]!r}, which is not supported")
    return moment.strftime(form)


def _raise_exception(message: Any) -> NoReturn:
    raise InputError(f"the chat template refuses the conversation: {message}", hint="change the messages")


def _said(error: BaseException) -> str:
    return str(error)[:300] or type(error).__name__
