"""Python in a page of a real headless Chromium: the same `edge_infer`, on the engines of the browser."""

from __future__ import annotations

import base64
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from edge_infer.errors import BackendUnavailable, ExecutionError, error_from_json
from edge_infer.formats.safetensors import read_examples, write_examples
from edge_infer.tools.browser.chromium import SOFTWARE_WEBGPU, chromium

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from edge_infer.formats.safetensors import Example
    from edge_infer.tensors.tensor import Tensor

# How long the page may take to start Python; a slow machine takes a minute.
_START_S = 300
# How long it may take to answer. 32 golden examples on a GPU that the processor imitates can take many minutes.
_ANSWER_S = 1800

_START = """async () => {
    const { loadPython } = await import("/src/index.js");
    globalThis.python = await loadPython({ keepImage: false });
}"""
_RUN = """async ([code, names]) => globalThis.python.run(code, names)"""
# Errors of ours must come back as data: Playwright would flatten them to text.
_GUARD = """async (argument) => {
    try { return { value: await (%s)(argument) }; }
    catch (error) {
        return { error: error.toJSON ? error.toJSON() : { error: String(error), code: "execution_error" } };
    }
}"""

_RUN_EXAMPLES = """
import base64
import edge_infer
import edge_infer.errors
from edge_infer.formats.safetensors import read_examples, write_examples

loading = edge_infer.load_async(url, backend=backend, variant=variant, device=device, strict=True, arrays="tensor")
with await loading as session:
    examples = read_examples(base64.b64decode(given)) if given else session.bundle.examples()
    results = [({}, await session.run_async(inputs)) for inputs, _ in examples]
    fallen = session.report().fallbacks
    if fallen:
        raise edge_infer.errors.BackendUnavailable(f"The device failed while it ran: {fallen[-1]}")
    version = session.report().engine_version
{"version": version, "outputs": base64.b64encode(write_examples(results)).decode()}
"""

_RUN_VECTORS = """
import edge_infer
from edge_infer.tasks.pipeline import Pipeline
from edge_infer.tasks.vectors import check_answers_async, check_steps, read

loading = edge_infer.load_async(url, backend=backend, variant=variant, device=device, strict=True, arrays="tensor")
with await loading as session, Pipeline(session) as pipeline:
    vectors = read(session.bundle)
    found = [check_steps(session.bundle, vectors), await check_answers_async(pipeline, vectors, variant)]
found
"""

_RUN_GENERATION = """
from edge_infer.bundle.bundle import Bundle
from edge_infer.generation.encoder_decoder import SequenceModel
from edge_infer.generation.sequence_vectors import sequence_difference
from edge_infer.generation.vectors import read_vectors

bundle = Bundle.open(url)
with SequenceModel(bundle, variant, backend=backend, device=device, strict=True) as model:
    asked = [one for one in read_vectors(bundle) if one.variant == variant]
    found = next(filter(None, (sequence_difference(bundle, model, one) for one in asked)), "")
found
"""


class PagePython:
    """Python in a page while the context lasts.

    Args:
        url: A server of edge-infer: `http://127.0.0.1:PORT`, without a `/` at its end.
        webgpu: Whether the page shall have WebGPU: Chromium's software adapter, which computes what a GPU does.

    Raises:
        BackendUnavailable: There is no Chromium, or Python does not start in its page.
    """

    def __init__(self, url: str, *, webgpu: bool = False) -> None:
        self._url = url
        self._flags = SOFTWARE_WEBGPU if webgpu else ()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            browser = opening.enter_context(chromium(*self._flags))
            self._page = browser.new_page()
            self._page.goto(f"{self._url}/blank.html", timeout=_START_S * 1000)
            try:
                self._evaluate(_START, None, _START_S)
            except ExecutionError as error:
                raise BackendUnavailable(
                    f"Python does not start in the page: {error.message}",
                    hint=error.hint or "pip install 'edge-infer[web]'",
                ) from error
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def run(self, code: str, names: Mapping[str, Any] | None = None) -> Any:
        """Run Python code in the page and return the value of its last expression.

        Args:
            code: Python; `await` is allowed at its top level.
            names: Variables to set first, JSON values.

        Raises:
            EdgeInferError: What the code raised.
            ExecutionError: The page does not answer; it is closed then.
        """
        return self._evaluate(_RUN, [code, dict(names or {})], _ANSWER_S)

    def run_examples(
        self, url: str, backend: str, variant: str, device: str = "auto", given: Sequence[Example] = ()
    ) -> tuple[str, list[dict[str, Tensor]]]:
        """Run a bundle's golden examples in the page, or others.

        Args:
            url: Where the page finds the bundle.
            backend: The name of an engine of the page.
            variant: The variant's id.
            device: What to run on.
            given: The others.

        Returns:
            The engine's version, and the outputs of each example.

        Raises:
            EdgeInferError: What the page's `load` or `run` raised.
        """
        inputs = base64.b64encode(write_examples([(feeds, {}) for feeds, _ in given])).decode() if given else ""
        names = {"url": url, "backend": backend, "variant": variant, "device": device, "given": inputs}
        answer = self.run(_RUN_EXAMPLES, names)
        examples = read_examples(base64.b64decode(answer["outputs"]))
        return str(answer["version"]), [outputs for _, outputs in examples]

    def run_vectors(self, url: str, backend: str, variant: str, device: str = "auto") -> tuple[list[str], list[str]]:
        """Run the vectors of a bundle's pipeline in the page.

        Args:
            url: Where the page finds the bundle, which has vectors.
            backend: The name of an engine of the page.
            variant: The variant's id.
            device: What to run on.

        Returns:
            What differs of the steps, and of the answers: nothing where all is right.

        Raises:
            EdgeInferError: What the page's `load` raised.
        """
        names = {"url": url, "backend": backend, "variant": variant, "device": device}
        steps, answers = self.run(_RUN_VECTORS, names)
        return list(steps), list(answers)

    def run_generation(self, url: str, backend: str, variant: str, device: str = "auto") -> str:
        """Run the vectors of a model with an encoder and a decoder in the page.

        Args:
            url: Where the page finds the bundle.
            backend: The name of an engine of the page.
            variant: The id of the decoder's variant.
            device: What to run on.

        Returns:
            What differs, in a few words; an empty text where all is equal.

        Raises:
            EdgeInferError: What the page's `load` or a run raised.
        """
        names = {"url": url, "backend": backend, "variant": variant, "device": device}
        return str(self.run(_RUN_GENERATION, names))

    def _evaluate(self, function: str, argument: Any, limit_s: int) -> Any:
        from playwright.sync_api import Error
        from playwright.sync_api import TimeoutError as TookTooLong

        try:
            # Not `evaluate`, which waits for ever; this ends even where the page's own thread is busy.
            found = self._page.wait_for_function(_GUARD % function, arg=argument, timeout=limit_s * 1000)
            answer = found.json_value()
        except TookTooLong as error:
            self._page.close()
            raise ExecutionError(f"The page does not answer within {limit_s} s") from error
        except Error as error:
            raise ExecutionError(f"The page failed: {error.message.splitlines()[0]}") from error
        if "error" in answer:
            raise error_from_json(answer["error"])
        return answer.get("value")
