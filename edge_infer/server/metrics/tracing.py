"""Spans: OpenTelemetry's account of a request, with where its time went as children; off unless it is configured.

A request without this costs nothing but one comparison. Its parent is what `traceparent` names
(https://www.w3.org/TR/trace-context/), so that a trace goes on through the server.
"""

from __future__ import annotations

from time import perf_counter, time_ns
from typing import TYPE_CHECKING

from edge_infer.errors import ServingError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.trace import TracerProvider

    from edge_infer.errors import EdgeInferError
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.protocol.head import RequestHead
    from edge_infer.server.scheduling.request import Timings

_NS = 1e9


class Spans:
    """Tells a tracer of each request, after it was answered.

    Args:
        provider: Of OpenTelemetry, which samples and exports.

    Raises:
        ServingError: OpenTelemetry is not installed.
    """

    def __init__(self, provider: TracerProvider) -> None:
        _require()
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        import edge_infer

        self._tracer = provider.get_tracer("edge_infer.server", edge_infer.__version__)
        self._parents = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER
        self._failed = Status(StatusCode.ERROR)
        self._inside = set_span_in_context

    def answered(
        self,
        model: LoadedModel,
        path: str,
        head: RequestHead | None,
        start: float,
        timings: Timings,
        serialization_s: float,
        tenant: str = "",
        variant: str = "",
    ) -> None:
        """Tell of a request that was answered just now.

        Args:
            model: What answered it.
            path: What was asked for.
            head: The request's headers, which name the trace; None where they could not be read.
            start: When it came, in seconds of `perf_counter`.
            timings: Where its time went.
            serialization_s: How long its answer took to write.
            tenant: Who asked, where there are tenants.
            variant: What ran, where the model has several variants.
        """
        end_ns = time_ns()
        start_ns = end_ns - round((perf_counter() - start) * _NS)
        attributes: dict[str, str | int] = {
            **self._attributes(model, path, 200),
            "edge_infer.batch.rows": timings.batch_size,
            **({"edge_infer.tenant": tenant} if tenant else {}),
            **({"edge_infer.variant": variant} if variant else {}),
        }
        span = self._tracer.start_span(
            f"infer {model.name}", self._parent(head), self._kind, attributes, start_time=start_ns
        )
        if span.is_recording():
            inside = self._inside(span)
            begin = start_ns
            for name, seconds in (
                ("queue", timings.queue),
                ("batch wait", timings.batch_wait),
                ("compute", timings.compute),
            ):
                child = self._tracer.start_span(name, inside, start_time=begin)
                begin += round(seconds * _NS)
                child.end(begin)
            written = self._tracer.start_span("serialization", inside, start_time=end_ns - round(serialization_s * _NS))
            written.end(end_ns)
        span.end(end_ns)

    def failed(
        self, model: LoadedModel, path: str, head: RequestHead | None, start: float, error: EdgeInferError, status: int
    ) -> None:
        """Tell of a request that failed just now, with its error."""
        end_ns = time_ns()
        span = self._tracer.start_span(
            f"infer {model.name}",
            self._parent(head),
            self._kind,
            {**self._attributes(model, path, status), "error.type": error.code, "error.message": error.message},
            start_time=end_ns - round((perf_counter() - start) * _NS),
        )
        span.set_status(self._failed)
        span.end(end_ns)

    def _parent(self, head: RequestHead | None) -> Context | None:
        if head is None or not head.traceparent:
            return None
        named = {"traceparent": head.traceparent, "tracestate": head.tracestate}
        return self._parents.extract({name: value.decode("latin-1") for name, value in named.items() if value})

    @staticmethod
    def _attributes(model: LoadedModel, path: str, status: int) -> dict[str, str | int]:
        """Name a request in the words of https://opentelemetry.io/docs/specs/semconv/http/http-spans/ and in ours."""
        return {
            "http.request.method": "POST",
            "url.path": path,
            "http.response.status_code": status,
            "edge_infer.model": model.name,
            "edge_infer.model.version": model.version,
            "edge_infer.pool": model.pool,
        }


def otlp_provider() -> SdkTracerProvider:
    """Make a provider that exports to the collector that the environment names, as every OpenTelemetry SDK does.

    `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, `OTEL_SERVICE_NAME`:
    https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/

    Raises:
        ServingError: OpenTelemetry or its exporter is not installed.
    """
    _require()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise _missing() from error
    import os

    name = os.environ.get("OTEL_SERVICE_NAME", "edge-infer")
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _require() -> None:
    from importlib.util import find_spec

    if find_spec("opentelemetry") is None:
        raise _missing()


def _missing() -> ServingError:
    return ServingError("Spans need OpenTelemetry, which is not installed", hint="pip install 'edge-infer[otel]'")
