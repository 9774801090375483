"""Every exception that edge-infer raises on purpose.

    EdgeInferError
    ├── BundleError              the files are wrong
    │   ├── ManifestError        manifest.json is not what it must be
    │   └── IntegrityError       a file is not the one the manifest names
    ├── InputError (ValueError)  the caller's tensors or arguments do not fit
    │   └── RangeNotSatisfiable  * the range of a file begins after its end
    ├── BackendError             an engine failed
    │   ├── BackendUnavailable   it is not installed, or cannot work here
    │   │   └── CudaUnavailable  CUDA cannot work here, or not all of the model would run on it
    │   ├── UnsupportedModel     it cannot load this model
    │   ├── UnsupportedError     it cannot do what was asked of it
    │   └── ExecutionError       it failed while running
    │       ├── OutOfMemory      the device has no memory left for it
    │       └── DeviceLost       the device failed, and does not come back in this process
    ├── ConversionError          a model could not be converted
    │   ├── UnsupportedOperator  the target format lacks an operator
    │   └── AccuracyError        the result is not as good as was asked
    ├── SyncError                weights could not be fetched or stored
    │   ├── FetchError           a URL did not answer with the file
    │   ├── SignatureError       the store's metadata is not signed by the keys that are trusted
    │   ├── EncryptedError       weights are encrypted, and no key that was given opens them
    │   ├── ExpiredError         the store's metadata is too old to install from
    │   ├── RollbackError        the store offers less than was seen already
    │   ├── DeltaError           a pack is malformed, or does not give the file it promises
    │   ├── TrialError           new weights failed their trial and were not taken
    │   ├── NotReleasedError     a version is not for this device, by a roll-out in steps or a halted one
    │   └── StoreError           a store or a device's folder is not what it must be, or is in use
    └── ServingError             the server cannot take the request
        ├── ModelNotFound        no such model or version
        ├── PayloadTooLarge      the request's body is over the limit
        ├── QueueFull            too many requests wait already
        │   └── OverShare        too many of this tenant's do, while others wait
        ├── Unauthorized         there is no API key, or it is nobody's
        ├── DeadlineExceeded     the answer would come too late
        ├── PathNotFound         * the server has nothing at this path
        ├── MethodNotAllowed     * the path does not take this method
        ├── UnsupportedMediaType * the request's body is in a form that the server does not read
        ├── UpgradeRequired      * the path is a WebSocket's, and the request does not open one
        ├── TooManyHeaders       * the request's headers are over the limit
        ├── RequestTooSlow       * the request did not arrive in time
        ├── OriginRefused        * the page that asks is of another server
        ├── NotAdmin             * the tenant may not change what all tenants share
        ├── PriorityRefused      * the tenant may not ask for this priority
        ├── ShuttingDown         * the server is stopping
        ├── ModelHangs           * too many batches of the model hang
        ├── ClientLeft           * the client left before its request ran
        ├── StorageFailed        * the server's disk is full, or fails
        └── InternalError        * a fault of the server

Those with a star are the server's own, in `edge_infer.server.errors`.

An error carries its facts as attributes, says in one line what is wrong, and in its `hint` what to type next. It
crosses a worker or the wire as JSON (`to_json`) and is rebuilt there as the same class (`error_from_json`).
"""

from __future__ import annotations

from math import isfinite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class EdgeInferError(Exception):
    """The base of all errors that edge-infer raises on purpose.

    Args:
        message: What is wrong, where, what was expected and what came: one line, no full stop.
        hint: What to type or change next; empty where nothing sensible can be said.
        **facts: The facts behind the message, JSON values; each becomes an attribute.
    """

    code = "error"

    def __init__(self, message: str, *, hint: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = facts

    def __getattr__(self, name: str) -> Any:
        """Look a fact up by its name."""
        details = self.__dict__.get("details", {})
        if name in details:
            return details[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __str__(self) -> str:
        return self.message if not self.hint else f"{self.message}\nhint: {self.hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        return error_from_json, (self.to_json(),)

    def to_json(self) -> dict[str, Any]:
        """Describe this error as the JSON object that the server answers with and workers post.

        What JSON does not know among the facts is spelt: `"NaN"`, `"Infinity"`, and anything else as `str` writes it.
        """
        return {"error": self.message, "code": self.code, "hint": self.hint, "details": _spelt(self.details)}


class BundleError(EdgeInferError):
    """The files of a bundle, or a model file, are not what they must be."""

    code = "bundle_error"


class ManifestError(BundleError):
    """`manifest.json` is malformed, of an unknown version, or promises what cannot be."""

    code = "manifest_error"


class IntegrityError(BundleError):
    """A file's size or sha256 is not the one that the manifest names."""

    code = "integrity_error"


class InputError(EdgeInferError, ValueError):
    """The caller's tensors or arguments do not fit: wrong name, dtype, rank, dimension or choice."""

    code = "input_error"


class BackendError(EdgeInferError):
    """An engine failed."""

    code = "backend_error"


class BackendUnavailable(BackendError):
    """An engine is not installed, or cannot work on this machine."""

    code = "backend_unavailable"


class CudaUnavailable(BackendUnavailable):
    """CUDA cannot work here, or not all of a model would run on it; `fault` says which in a word."""

    code = "cuda_unavailable"


class UnsupportedModel(BackendError):
    """An engine cannot load this model: not a model, an unknown operator, a version it does not know."""

    code = "unsupported_model"


class UnsupportedError(BackendError):
    """An engine, or the place it runs in, cannot do what was asked of it."""

    code = "unsupported"


class ExecutionError(BackendError):
    """An engine failed while it ran a model."""

    code = "execution_error"


class OutOfMemory(ExecutionError):
    """The device has no memory left for what the model needs."""

    code = "out_of_memory"


class DeviceLost(ExecutionError):
    """The device failed: nothing runs on it any more until the process starts again."""

    code = "device_lost"


class ConversionError(EdgeInferError):
    """A model could not be converted."""

    code = "conversion_error"


class UnsupportedOperator(ConversionError):
    """The format to write has no equivalent of an operator of the model."""

    code = "unsupported_operator"


class AccuracyError(ConversionError):
    """A converted model is not as good as was asked."""

    code = "accuracy_error"


class SyncError(EdgeInferError):
    """Weights could not be fetched, checked or stored."""

    code = "sync_error"


class FetchError(SyncError):
    """A URL did not answer with the file."""

    code = "fetch_error"


class SignatureError(SyncError):
    """The store's metadata is not signed by the keys that are trusted, or does not fit together."""

    code = "signature_error"


class EncryptedError(SyncError):
    """Weights are encrypted, and no key that was given opens them, or a key file is none."""

    code = "encrypted"


class ExpiredError(SyncError):
    """The store's metadata is too old to install from; what runs already goes on running."""

    code = "metadata_expired"


class RollbackError(SyncError):
    """The store offers less than was seen already."""

    code = "rollback_refused"


class DeltaError(SyncError):
    """A pack is malformed, or does not give the file that it promises."""

    code = "delta_error"


class TrialError(SyncError):
    """New weights failed their trial and were not taken."""

    code = "trial_failed"


class NotReleasedError(SyncError):
    """A version is not for this device, by a roll-out in steps or one that was halted."""

    code = "not_released"


class StoreError(SyncError):
    """A store or a device's folder is not what it must be, or is in use."""

    code = "store_error"


class ServingError(EdgeInferError):
    """The server cannot take the request."""

    code = "serving_error"


class ModelNotFound(ServingError):
    """There is no such model, or no such version of it."""

    code = "model_not_found"


class PayloadTooLarge(ServingError):
    """The request's body is over the server's limit."""

    code = "payload_too_large"


class QueueFull(ServingError):
    """Too many requests wait already; come back later."""

    code = "queue_full"


class OverShare(QueueFull):
    """A tenant asks for more than its share while others wait."""

    code = "over_share"


class Unauthorized(ServingError):
    """The request has no API key, or one that is nobody's."""

    code = "unauthorized"


class DeadlineExceeded(ServingError):
    """The answer would come after the request's deadline."""

    code = "deadline_exceeded"


def _subclasses(root: type[EdgeInferError]) -> dict[str, type[EdgeInferError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found.update(_subclasses(child))
    return found


def error_from_json(document: dict[str, Any]) -> EdgeInferError:
    """Rebuild the error that `EdgeInferError.to_json` described, as the same class.

    A code that this version does not know becomes a plain `EdgeInferError`.
    """
    error_class = _subclasses(EdgeInferError).get(str(document.get("code")), EdgeInferError)
    details = document.get("details")
    error = error_class(str(document.get("error", "unknown error")), hint=str(document.get("hint") or ""))
    error.details = dict(details) if isinstance(details, dict) else {}
    return error


def _spelt(value: Any) -> Any:
    """Return a fact as JSON knows it."""
    if value is None or isinstance(value, (str, int)):  # and bool
        return value
    if isinstance(value, float):
        return value if isfinite(value) else "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(name): _spelt(member) for name, member in value.items()}
    return [_spelt(member) for member in value] if isinstance(value, (list, tuple)) else str(value)


_MAX_WORD = 100


def did_you_mean(word: str, choices: list[str]) -> str:
    """Return a hint that names the choice nearest to a mistyped word, or an empty string.

    `web/src/tasks/words.js` gives the same. Longer words are cut, as difflib has another rule for long ones.
    """
    from difflib import get_close_matches

    spelt = {choice.lower(): choice for choice in choices}
    near = get_close_matches(word.lower()[:_MAX_WORD], spelt, n=1)
    return f"did you mean `{spelt[near[0]]}`?" if near else ""


def listed(words: list[str]) -> str:
    """Write words as a readable list of literals: `a`, `b`, `c`."""
    return ", ".join(f"`{word}`" for word in words) if words else "nothing"
