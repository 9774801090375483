"""`POST /v2/models/NAME/feedback`, and the header of each answer that it refers to."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from starlette.routing import Route

from edge_infer.errors import InputError, ModelNotFound, StoreError
from edge_infer.server.errors import StorageFailed, UnsupportedMediaType
from edge_infer.server.feedback.ids import AnswerIds
from edge_infer.server.headers import ANSWERING
from edge_infer.server.ingestion.bodies import read_body
from edge_infer.server.protocol.requests import parse_request
from edge_infer.server.responses import NO_STORE, json_answer
from edge_infer.tensors.datatypes import DATATYPES
from edge_infer.tensors.dtypes import DType

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.feedback.log import FeedbackLog
    from edge_infer.server.ingestion.admission import ServerContext

#: The header of an answer that feedback refers to.
HEADER = b"feedback-id"
#: The most bytes of feedback, the input included.
MAX_FEEDBACK_BYTES = 2**20
MAX_LABELS = 1024
_MAX_TEXT = 1000
_FIELDS = ("id", "label", "consent", "inputs")
_EXAMPLE = '{"id": "Feedback-Id of the answer", "label": 3}'
_OK = 200


class Feedback:
    """Takes feedback, and marks the answers that it may refer to.

    Args:
        log: Where it is kept.
        context: Knows the models and the tenants.
    """

    def __init__(self, log: FeedbackLog, context: ServerContext) -> None:
        self._log = log
        self._context = context
        self._ids = AnswerIds(log.secret)

    def routes(self) -> list[Route]:
        """List the routes; a model is addressed with or without its version."""
        bases = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
        return [Route(f"{base}/feedback", self.take, methods=["POST"]) for base in bases]

    def marking(self, app: ASGIApp, name: str) -> ASGIApp:
        """Return an application whose answers, of a model, have an id."""

        async def marked(scope: Scope, receive: Receive, send: Send) -> None:
            async def mark(message: Message) -> None:
                if message["type"] == "http.response.start" and message["status"] == _OK:
                    tenant = self._context.keys.tenant_of(scope["headers"]).name
                    pair = (HEADER, self._ids.make(name, scope[ANSWERING], tenant).encode())
                    message = {**message, "headers": [*message.get("headers", ()), pair]}
                await send(message)

            await app(scope, receive, mark)

        return marked

    async def take(self, request: Request) -> Response:
        """Keep what somebody says of an answer."""
        tenant = self._context.admit(request.scope["headers"])
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # any page may have a browser send other types
            raise UnsupportedMediaType(f"Feedback is of type `{kind[:80]}`, expected `application/json`", hint=_EXAMPLE)
        length = request.headers.get("content-length", "")
        declared = int(length) if length.isdecimal() and len(length) < 20 else -1
        body = await read_body(request.receive, declared, MAX_FEEDBACK_BYTES)
        name = request.path_params["name"]
        document = await to_thread.run_sync(_parsed, body)
        given, version = self._ids.check(document.get("id"), name, tenant.name)
        label = _label(document.get("label"))
        asked = request.path_params.get("version", version)
        if asked != version:
            raise InputError(
                f"`id` is of an answer of version {version}, and not {asked[:80]}",
                hint=f"POST /v2/models/{name}/feedback",
                field="id",
            )
        record = {"id": given, "time": round(time.time(), 3), "model": name, "version": version}
        record |= {"tenant": tenant.name, "label": label}
        if "inputs" in document:
            if document.get("consent") is not True:
                raise InputError(
                    "The feedback has `inputs`, but not `consent`: true",
                    hint="ask the person whose data these are, or leave `inputs` out",
                    field="consent",
                )
            model = await self._model(name, version)
            record["inputs"] = await to_thread.run_sync(_inputs, document["inputs"], model, label)
        try:
            await to_thread.run_sync(self._log.add, record)
        except StoreError as error:
            raise StorageFailed(error.message, hint=error.hint) from error
        return json_answer({"id": given, "kept": "inputs" if "inputs" in record else "label"}, NO_STORE)

    async def _model(self, name: str, version: str) -> LoadedModel:
        """Return the version that answered, whose inputs are known; where it is gone, the one that is served now."""
        try:
            return await self._context.engine.settled(name, version)
        except ModelNotFound:
            return await self._context.engine.settled(name)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"The feedback is not JSON: {error}", hint=_EXAMPLE) from error
    if not isinstance(document, dict):
        raise InputError("The feedback is not a JSON object", hint=_EXAMPLE)
    unknown = [str(field)[:80] for field in document if field not in _FIELDS]
    if unknown:
        raise InputError(f"The feedback has a field `{unknown[0]}`", hint=_EXAMPLE, allowed=list(_FIELDS))
    return document


def _label(value: Any) -> Any:
    """Return what somebody says is right: a number or a text, or one for each row of a batch."""
    if isinstance(value, list) and 0 < len(value) <= MAX_LABELS:
        labels = [_label(one) if not isinstance(one, list) else _refused(one) for one in value]
        if len({isinstance(one, str) for one in labels}) == 1:
            return labels
        return _refused(value)
    if isinstance(value, str) and 0 < len(value) <= _MAX_TEXT:
        if any("\ud800" <= one <= "\udfff" for one in value):  # half of a pair is no text, and no file takes it
            return _refused(value)
        return value
    if type(value) in (int, float) and -(2**53) < value < 2**53:  # so no NaN either
        return value
    return _refused(value)


def _refused(value: Any) -> Any:
    raise InputError(
        f"`label` is {json.dumps(value)[:80]}, expected a finite number, a text of at most {_MAX_TEXT} characters, or "
        f"a list of at most {MAX_LABELS} of one kind",
        hint=_EXAMPLE,
        field="label",
    )


def _inputs(entries: Any, model: LoadedModel, label: Any) -> dict[str, Any]:
    """Check inputs as those of a request are; return them for the log: exact bytes."""
    parsed = parse_request(json.dumps({"inputs": entries}).encode(), model.inputs, [])
    rows = len(label) if isinstance(label, list) else 1
    found: dict[str, Any] = {}
    for name, tensor in parsed.inputs.items():
        shape = list(tensor.shape)
        if not shape or shape[0] != rows:
            raise InputError(
                f"Input `{name}` has the shape {shape}, and there are {rows} labels",
                hint="send the input of the answer as it was, and a label for each row: [3] for one",
                input=name,
                expected=rows,
            )
        if tensor.dtype is DType.STRING:
            data: Any = tensor.tolist()
        else:
            data = base64.b64encode(tensor.data()).decode()
        found[name] = {"datatype": DATATYPES[tensor.dtype], "shape": shape, "data": data}
    return found
