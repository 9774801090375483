"""The entries of ONNX Runtime's session configuration that a program and a bundle may set."""

from __future__ import annotations

from edge_infer.errors import ManifestError
from edge_infer.platform.cpu import read_processor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: The entry that has a session record which provider computes each node, at no cost that shows.
RECORD = "session.record_ep_graph_assignment_info"
# Entries of the session's configuration that a bundle may set: numbers and switches, no path to read or write.
_BUNDLE_MAY_SET = (
    "session.x64quantprecision",
    "session.disable_prepacking",
    "session.disable_quant_qdq",
    "session.enable_quant_qdq_cleanup",
    "session.qdqisint8allowed",
    "session.qdq_matmulnbits_accuracy_level",
    "session.set_denormal_as_zero",
    "session.intra_op.allow_spinning",
    "session.disable_double_qdq_remover",
    "optimization.",
    "mlas.",
)


# "Slower U8U8 matrix multiplications" for x86 without VNNI, whose quicker ones saturate
# (onnxruntime_session_options_config_keys.h). With VNNI both give the same bits, and the slow ones take up to twice the
# time of a whole model: there the bundle's wish is met without it. A program's own (`user.`) is passed on unchanged.
_PRECISE = "session.x64quantprecision"


def session_entries(options: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of the session's configuration among the options of a backend.

    Args:
        options: The bundle's settings, and those of `OnnxRuntimeOptions.settings`, whose entries begin with `user.`.

    Raises:
        ManifestError: A setting is not one that a bundle may set.
    """
    entries = {}
    for key, value in options.items():
        if key.startswith("user."):
            entries[key.removeprefix("user.")] = value
        elif key == _PRECISE and read_processor().has_dot_product:
            continue
        elif key.startswith(_BUNDLE_MAY_SET):
            entries[key] = value
        elif key not in ("strict", "intra_op_threads", "arena") and key.partition(".")[0] != "provider":
            raise ManifestError(
                f"The bundle sets `{key}` of onnxruntime, which is none that a bundle may set",
                hint="OnnxRuntimeOptions(session_settings={...}) in the program that loads it",
                got=key,
            )
    return entries


def with_precise(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options with the precise mode, or None where they set it themselves or no kernel saturates here.

    A bare file has no options, and has to give the same integers on every machine. A float model is not changed by it.
    """
    if _PRECISE in options or f"user.{_PRECISE}" in options or not read_processor().saturates:
        return None
    return {**options, _PRECISE: "1"}
