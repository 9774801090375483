"""Chat templates in a page, where Python has no jinja2: `web/src/generation/template.js` renders them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edge_infer.backends.web.call import translated
from edge_infer.errors import BackendUnavailable, InputError
from edge_infer.platform import host

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Where the module and the package that renders stay: names in JavaScript's global scope.
_MODULE, _JINJA = "edgeInferTemplate", "edgeInferJinja"
_ASYNC = "write `await edge_infer.generate_async(...)`"


async def start() -> None:
    """Fetch what renders templates where nobody has.

    Raises:
        BackendUnavailable: This is no page, or the files are missing.
    """
    if not host.in_browser():
        raise BackendUnavailable("A page's chat templates render only inside Pyodide", hint="pip install jinja2")
    import js

    if getattr(js, _JINJA, None) is None:
        from pyodide.code import run_js

        with translated:
            root = host.web_root()
            module = await run_js("(url) => import(url)")(f"{root}src/generation/template.js")
            jinja = await module.loadJinja(root)
        setattr(js, _MODULE, module)
        setattr(js, _JINJA, jinja)


class PageTemplate:
    """A chat template, as `edge_infer.generation.template.ChatTemplate` is: with the same texts and errors.

    Args:
        source: The template, in Jinja2's language.
        special_tokens: The texts of special tokens by name, such as `bos_token`.

    Raises:
        BundleError: It is no template, or longer than 256 KiB.
        UnsupportedError: What renders is not there, and this place cannot wait for it.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None) -> None:
        import js

        if getattr(js, _JINJA, None) is None:
            host.suspend(start(), _ASYNC)
        with translated:
            self._template: Any = getattr(js, _MODULE).ChatTemplate.ofJson(
                getattr(js, _JINJA), source, json.dumps(dict(special_tokens or {}))
            )

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None, **values: Any
    ) -> str:
        """Write the prompt of a conversation; see `ChatTemplate.render`.

        Raises:
            InputError: The template refuses the conversation, or a value is none of JSON.
            BundleError: The template is wrong, or takes too long.
        """
        try:
            text = json.dumps({"messages": list(messages), "tools": tools, "values": values}, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"the conversation is not JSON: {error}", hint="use texts, numbers, lists and dicts"
            ) from error
        with translated:
            return str(self._template.renderJson(text))
