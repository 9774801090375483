"""One memory arena for all sessions of a process on a device.

Each session of ONNX Runtime keeps an arena of its own, which only grows: several models on one GPU hold the sum of
their peaks. An allocator that is registered with the environment is shared by the sessions that ask for it
(`session.use_env_allocators`, onnxruntime_session_options_config_keys.h), and so is its bound.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from edge_infer.errors import InputError

#: The session's entry that lets it use the environment's allocators.
USE = "session.use_env_allocators"
_NAMES = {"cpu": "Cpu", "cuda": "Cuda"}  # OrtMemoryInfo's names of the two kinds of memory

# The bound of each arena that was made, in bytes; the environment keeps them as long as the process lives.
_MADE: dict[tuple[str, int], int] = {}
_LOCK = Lock()


def share(onnxruntime: Any, kind: str, index: int, limit: int) -> None:
    """Make the arena of a device, where nobody has yet.

    Args:
        onnxruntime: The engine's module.
        kind: `cpu` or `cuda`.
        index: Which of these devices.
        limit: The most that it takes, in bytes; 0 for no bound.

    Raises:
        InputError: It is there already, with another bound.
    """
    with _LOCK:
        made = _MADE.get((kind, index))
        if made is None:
            memory = onnxruntime.OrtMemoryInfo(
                _NAMES[kind], onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, index, onnxruntime.OrtMemType.DEFAULT
            )
            # What is left out stays the engine's default.
            arena = onnxruntime.OrtArenaCfg({"max_mem": limit} if limit else {})
            if kind == "cuda":
                provider = {"device_id": str(index)}
                onnxruntime.create_and_register_allocator_v2("CUDAExecutionProvider", memory, provider, arena)
            else:
                onnxruntime.create_and_register_allocator(memory, arena)
            _MADE[kind, index] = limit
        elif made != limit:
            raise InputError(
                f"The shared arena of `{kind}:{index}` was made {_bound(made)}, {_bound(limit)} was asked for",
                hint="give all sessions of a device the same `memory_limit_mb`",
                expected=made,
                got=limit,
            )


def _bound(limit: int) -> str:
    return f"with a bound of {limit // 2**20} MiB" if limit else "without a bound"
