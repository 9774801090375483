"""`SessionOptions`, `RunOptions` and the enumerations of onnxruntime, as far as the page's engine follows them.

Setting what it cannot follow raises a NotImplementedError at once: no setting is taken and then ignored.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar

_ONE_ENGINE = "the engine was built without it"


class GraphOptimizationLevel(IntEnum):
    """How much of the graph is rewritten when a model is loaded."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Whether operators may run beside each other."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """In which order operators run."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


_LEVELS = {0: "disabled", 1: "basic", 2: "extended", 3: "layout", 99: "all"}
_MODES = {0: "sequential", 1: "parallel"}


class _Settings:
    """Attributes with defaults, of which some cannot be changed."""

    _defaults: ClassVar[dict[str, Any]] = {}
    #: Options that have one value here, each with the reason.
    _fixed: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        self.__dict__.update(self._defaults)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name in self._fixed and value != self._defaults[name]:
            raise NotImplementedError(
                f"`{type(self).__name__}.{name} = {value!r}` cannot work in a page: {self._fixed[name]}"
            )
        self.__dict__[name] = value


class SessionOptions(_Settings):
    """How a model is loaded.

    `intra_op_num_threads` is taken where the engine has as many threads, which it got when it started; another number
    warns when the session is made. `log_severity_level` is what the engine writes to the page's console.
    """

    _defaults: ClassVar[dict[str, Any]] = {
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "enable_profiling": False,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "inter_op_num_threads": 0,
        "intra_op_num_threads": 0,
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "optimized_model_filepath": "",
        "profile_file_prefix": "onnxruntime_profile_",
        "use_deterministic_compute": False,
        "use_per_session_threads": True,
    }
    _fixed: ClassVar[dict[str, str]] = {
        "enable_mem_reuse": "the engine's interface has no such switch",
        "enable_profiling": "the engine would write its profile into a file system of its own, which it has none of",
        "execution_order": "the engine's interface has no such switch",
        "log_verbosity_level": "the engine's log goes to the console by severity only",
        "logid": "the engine's log goes to the console by severity only",
        "optimized_model_filepath": "the engine has no file system to write the model to",
        "profile_file_prefix": "there is no profile to write",
        "use_deterministic_compute": "the engine's interface has no such switch",
        "use_per_session_threads": "all sessions of a page share the engine's threads",
    }

    def __init__(self) -> None:
        super().__init__()
        self.__dict__.update(_config={}, _free={}, _external={})

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry, as `onnxruntime_session_options_config_keys.h` lists them."""
        self.__dict__["_config"][str(key)] = str(value)

    def get_session_config_entry(self, key: str) -> str:
        """Return a configuration entry; a RuntimeError where it was not set."""
        config: dict[str, str] = self.__dict__["_config"]
        if key not in config:
            raise RuntimeError(f"SessionOptions does not have configuration with key: {key}")
        return config[key]

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix a symbolic dimension."""
        self.__dict__["_free"][str(name)] = int(size)

    def add_external_initializers_from_files_in_memory(
        self, file_names: list[str], buffers: list[Any], lengths: list[int]
    ) -> None:
        """Give the files with weights that a model refers to, instead of having them beside it."""
        for name, buffer, length in zip(file_names, buffers, lengths, strict=True):
            self.__dict__["_external"][name] = bytes(memoryview(buffer).cast("B")[:length])

    def add_provider(self, name: str, options: dict[str, str]) -> None:
        """Accept the one provider that there is."""
        del options
        if name != "CPUExecutionProvider":
            raise NotImplementedError(f"Provider `{name}` cannot work in a page: {_ONE_ENGINE}")

    def has_providers(self) -> bool:
        """Tell whether a provider other than the CPU was added: never."""
        return False

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Not in a page."""
        raise NotImplementedError(
            f"Fixing `{denotation}` to {size} by denotation cannot work in a page: the engine's interface takes names; "
            "use add_free_dimension_override_by_name"
        )

    def register_custom_ops_library(self, path: str) -> None:
        """Not in a page."""
        raise NotImplementedError(f"`{path}` cannot be loaded in a page: WebAssembly loads no native libraries")

    def add_initializer(self, name: str, value: object) -> None:
        """Not in a page."""
        raise NotImplementedError(
            f"Replacing the initializer `{name}` cannot work in a page: the engine's interface has no such call"
        )

    def add_external_initializers(self, names: list[str], values: list[object]) -> None:
        """Not in a page."""
        raise NotImplementedError(
            f"Replacing {len(names)} initializers cannot work in a page: the engine's interface has no such call; "
            "use add_external_initializers_from_files_in_memory"
        )

    def external(self) -> dict[str, bytes]:
        """Return the files that were given in memory."""
        return dict(self.__dict__["_external"])

    def for_engine(self) -> dict[str, Any]:
        """Return the settings as `SessionOptions` of `web/src/engines/ort-session.js`."""
        severity = int(self.log_severity_level)
        return {
            "graphOptimizationLevel": _LEVELS[int(self.graph_optimization_level)],
            "executionMode": _MODES[int(self.execution_mode)],
            "memoryArena": bool(self.enable_cpu_mem_arena),
            "memoryPattern": bool(self.enable_mem_pattern),
            "config": self.__dict__["_config"],
            "freeDimensions": self.__dict__["_free"],
            # Less than fatal errors are raised, with the same text, so that the console need not show them.
            "logLevel": 4 if severity < 0 else severity,
        }

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class RunOptions(_Settings):
    """How one run is done: in a page nothing of it can be changed."""

    _defaults: ClassVar[dict[str, Any]] = {
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "only_execute_path_to_fetches": False,
        "terminate": False,
        "training_mode": False,
    }
    _fixed: ClassVar[dict[str, str]] = {
        "log_severity_level": "the engine's log level is that of its session",
        "log_verbosity_level": "the engine's log level is that of its session",
        "logid": "the engine's log goes to the console by severity only",
        "only_execute_path_to_fetches": "a run here takes no options",
        "terminate": "a run blocks its thread, so that nobody could set this while it lasts",
        "training_mode": "the engine was built for inference only",
    }

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Not in a page."""
        raise NotImplementedError(f"`{key}` = `{value}` cannot work in a page: a run here takes no options")
