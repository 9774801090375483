"""The public names and their signatures: a change of the surface is a visible diff."""

from __future__ import annotations

import inspect

import edge_infer

LOAD = (
    "(source, *, device='auto', backend=None, variant=None, threads=None, latency_budget_ms=None, tune=False, "
    "strict=False, self_test=False, arrays='auto', options=None, fallback=None, key=None)"
)
TUNE = "(source, *, device='auto', backend=None, variant=None, threads=None, max_time_s=10.0, save=True, progress=None)"
ENCODE = "add_special_tokens=True, truncation='file', padding='file', offsets=False, overflow=False"
STREAM = "(self, prompt, *, tools=None, template_values=None, **options)"
SIGNATURES = {
    "generate": "(bundle, *, variant=None, slots=1, context=None, threads=None)",
    "Generator.stream": STREAM,
    "Generator.complete": "(self, prompt, **options)",
    "Generator.chat": "(self, messages, **options)",
    "Generator.render": "(self, messages, tools=None, **values)",
    "Generator.tokenize": "(self, text)",
    "load": LOAD,
    "load_async": LOAD,
    "tune": TUNE,
    "check": "(source, *, device='auto', backend=None, variant=None, threads=None)",
    "Session.run": "(self, inputs, outputs=None, *, into=None, keep=())",
    "Session.run_async": "(self, inputs, outputs=None, *, into=None, keep=())",
    "Session.prepare": "(self, shapes=None)",
    "Session.stream": "(self, state=None, *, initial=None)",
    "Session.report": "(self)",
    "Session.close": "(self)",
    "PreparedCall.__call__": "(self, inputs=None)",
    "Stream.step": "(self, inputs)",
    "Stream.state": "(self)",
    "Tensor.reshape": "(self, *shape)",
    "Tensor.argmax": "(self, axis=None)",
    "Bundle.open": "(source, *, key=None)",
    "Tokenizer.from_file": "(path)",
    "Tokenizer.from_bytes": "(data)",
    "Tokenizer.encode": f"(self, text, pair=None, *, {ENCODE})",
    "Tokenizer.encode_batch": f"(self, texts, *, {ENCODE})",
    "Tokenizer.decode": "(self, ids, *, skip_special_tokens=True)",
    "Tokenizer.decode_stream": "(self, *, skip_special_tokens=True)",
    "DecodeStream.step": "(self, number)",
    "Truncation": "(max_length, stride=0, strategy='longest_first', side='right')",
    "Index.create": ("(path, dimension, metric='cosine', *, rows='int8', words=True, embedding=None, model=None)"),
    "Index.open": "(path, *, model=None, check=True)",
    "Index.add": "(self, vectors=None, ids=None, metadata=None, texts=None)",
    "Index.delete": "(self, ids)",
    "Index.compact": "(self)",
    "Index.search": "(self, query, k=10, *, where=None, full_scan=False, mode='vectors')",
    "Counters.of": "(bundle)",
    "Counters.observe": "(self, inputs, outputs)",
    "Counters.merge": "(self, other)",
    "Session.observe": "(self, observer)",
    "Pipeline.predict_table": "(self, table, *, scores=False)",
    "kmeans": "(vectors, k, *, iterations=100, seed=0)",
    "cosine_similarity": "(first, second)",
    "batch_normalize": "(vectors)",
    "Padding": "(length=None, multiple_of=None, side='right', pad_id=0, pad_type_id=0)",
}


def test_every_public_name_is_there_and_documented() -> None:
    for name in edge_infer.__all__:
        assert inspect.getdoc(getattr(edge_infer, name)), name
    assert list(edge_infer.__all__) == sorted(edge_infer.__all__)


def test_signatures_are_as_promised() -> None:
    for path, expected in SIGNATURES.items():
        target = edge_infer
        for piece in path.split("."):
            target = getattr(target, piece)
        signature = inspect.signature(target)  # type: ignore[arg-type]
        bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
        plain = signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)
        assert str(plain) == expected, path
