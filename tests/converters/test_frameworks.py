"""Keras on each of its engines, JAX, TensorFlow: each model becomes ONNX that gives the framework's own numbers."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import ConversionError
from edge_infer_converters.sources.factory import open_source

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
#: Made by `tests/setup.sh all`: packages that lie before those of this environment.
PLACES = {"jax": ROOT / ".bench/jax", "tensorflow": ROOT / ".bench/tensorflow"}
MODELS = """
import functools, sys
import numpy as np

def keras_net():
    import keras

    @keras.saving.register_keras_serializable("ours")
    class Doubled(keras.layers.Layer):
        def call(self, x):
            return keras.ops.concatenate([x, -x], -1)

    keras.utils.set_random_seed(0)
    image, weight = keras.Input((8, 8, 1), name="image"), keras.Input((1,), name="weight")
    x = keras.layers.Conv2D(4, 3, padding="same", activation="relu")(image)
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.BatchNormalization()(x))
    return keras.Model([image, weight], keras.layers.Dense(3, activation="softmax", name="scores")(x) * weight)

def keras_of_one_engine():
    import keras

    @keras.saving.register_keras_serializable("ours")
    class Raw(keras.layers.Layer):
        def call(self, x):
            import jax.numpy
            return jax.numpy.sin(x)

    return keras.Sequential([keras.Input((3,)), Raw()])

def flax_nnx():
    import jax
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.conv, self.norm = nnx.Conv(1, 4, (3, 3), rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
            self.drop, self.dense = nnx.Dropout(0.5, rngs=rngs), nnx.Linear(4, 3, rngs=rngs)

        def __call__(self, image):
            x = nnx.relu(self.norm(self.conv(image))).mean((1, 2))
            return jax.nn.softmax(self.dense(self.drop(x)))

    return Net(nnx.Rngs(0)), (np.ones((1, 8, 8, 1), np.float32),)

def flax_linen():
    import jax
    from flax import linen

    class Text(linen.Module):
        @linen.compact
        def __call__(self, ids, shift):
            words = linen.SelfAttention(2)(linen.Embed(10, 8)(ids))
            return {"shifted": shift + 1, "classes": linen.Dense(3)(words)}

    net, ids, shift = Text(), np.ones((2, 5), np.int32), np.ones((2, 5), np.float32)
    variables = net.init(jax.random.key(0), ids, shift)
    return functools.partial(net.apply, variables), {"ids": ids, "shift": shift}

def scanned():
    import jax
    import jax.numpy as jnp

    def recurrent(x):
        def step(carry, value):
            carry = jnp.tanh(carry + value)
            return carry, carry
        return jax.lax.scan(step, jnp.zeros(x.shape[0]), x.T)[1].T

    return recurrent, (np.ones((2, 6), np.float32),)

def pooled():
    import jax.numpy as jnp
    return (lambda image: jnp.tanh(image).mean((1, 2))), (np.ones((1, 8, 8, 3), np.float32),)

def of_one_width():
    weights = np.ones((6, 3), np.float32)
    return (lambda x: x @ weights), (np.ones((2, 6), np.float32),)

def of_one_batch():
    import jax.numpy as jnp
    return (lambda x: x + jnp.arange(int(x.shape[0]), dtype=jnp.float32)[:, None]), (np.ones((3, 4), np.float32),)

def without_example():
    return flax_nnx()[0]

def of_a_key():
    import jax
    return (lambda key: key), (jax.random.key(0),)

def of_a_scalar():
    import jax.numpy as jnp
    return (lambda output: {"output": jnp.sin(output)}), (np.float32(3),)

def of_bfloat16():
    import jax.numpy as jnp
    return jnp.sin, (jnp.ones((2, 3), jnp.bfloat16),)

def unknown_operation():
    import jax.numpy as jnp
    return (lambda x: jnp.linalg.qr(x)[0]), (np.ones((2, 4, 4), np.float32),)
"""
OPEN = """
import sys
import numpy as np
from edge_infer.errors import EdgeInferError
from edge_infer_converters.sources.factory import open_source
from edge_infer_converters.sources.options import Dynamic, SourceOptions
for argument in sys.argv[1:]:
    where, *free = argument.split()
    if where == "net.keras":
        import models
        models.keras_net().save(where)
    places = [one.replace("=", ":").split(":") for one in free]
    dynamic = tuple(Dynamic(symbol, tensor, int(axis)) for tensor, axis, symbol in places)
    try:
        model = open_source(where, SourceOptions(dynamic=dynamic))
    except EdgeInferError as error:
        print(f"{error.message} | {error.hint}")
        continue
    shapes = [f"{spec.name} {spec.dtype} {spec.shape}" for spec in (*model.inputs, *model.outputs)]
    print(model.framework.name, *shapes, sep="; ")
"""


#: What is opened with each framework: in one process, because importing the framework takes the longest.
OPENED = {
    "jax": (
        *("models:keras_net", "models:keras_of_one_engine", "net.keras"),
        *("models:flax_nnx", "models:flax_linen", "models:scanned", "models:of_a_scalar"),
        *("models:pooled", "models:pooled image:1=height image:2=width", "models:of_one_width x:1=width"),
        *("models:without_example", "models:of_a_key", "models:of_bfloat16", "models:unknown_operation"),
        "models:of_one_batch",
    ),
    "tensorflow": ("models:keras_net", "net.keras"),
}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], str]:
    """Return what says, of a source that was opened with a framework, how it is read or why it is refused."""

    @functools.cache
    def lines(place: str) -> dict[str, str]:
        if not (PLACES[place] / "ready").exists():
            pytest.skip(f"{place} is not installed: tests/setup.sh all")
        folder = tmp_path_factory.mktemp(place)
        (folder / "models.py").write_text(MODELS)
        (folder / "open.py").write_text(OPEN)
        done = subprocess.run(
            [sys.executable, "open.py", *OPENED[place]],
            cwd=folder,
            env={**os.environ, "KERAS_BACKEND": place, "PYTHONPATH": f"{PLACES[place]}{os.pathsep}{folder}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return dict(zip(OPENED[place], done.stdout.splitlines(), strict=True))

    return lambda place, where: lines(place)[where]


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize("engine", ["jax", "tensorflow"])
@pytest.mark.parametrize("where", ["models:keras_net", "net.keras"])
def test_a_keras_model_of_another_engine_is_judged_by_that_engine(
    opened: Callable[[str, str], str], engine: str, where: str
) -> None:
    line = opened(engine, where)

    assert line.startswith(f"keras on {engine}; image float32 ('batch', 8, 8, 1); weight float32 ('batch', 1); ")
    assert line.endswith(" float32 ('batch', 3)")


@pytest.mark.long
@pytest.mark.torch
def test_a_layer_that_calls_one_engine_is_told_with_the_other_way(opened: Callable[[str, str], str]) -> None:
    line = opened("jax", "models:keras_of_one_engine")

    assert "is on Keras's jax engine, and its torch engine, which exports, does not take it" in line
    assert "give it as a JAX function" in line


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("flax_nnx", "jax; image float32 ('batch', 8, 8, 1); output float32 ('batch', 3)"),
        (
            "flax_linen",
            "jax; ids int32 ('batch', 'sequence'); shift float32 ('batch', 5); shifted float32 ('batch', 5); "
            "classes float32 ('batch', 'sequence', 3)",
        ),
        ("scanned", "jax; x float32 ('batch', 6); output float32 ('batch', 6)"),
        ("of_a_scalar", "jax; output float32 (); output_out float32 ()"),
        ("pooled", "jax; image float32 ('batch', 8, 8, 3); output float32 ('batch', 3)"),
        (
            "pooled image:1=height image:2=width",
            "jax; image float32 ('batch', 'height', 'width', 3); output float32 ('batch', 3)",
        ),
    ],
)
def test_functions_of_jax_give_what_they_give_in_jax(
    opened: Callable[[str, str], str], function: str, says: str
) -> None:
    assert opened("jax", f"models:{function}") == says


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("of_one_width x:1=width", "with 12 in place of 6 jax says: "),
        ("without_example", "without example inputs | return function, (example,)"),
        ("of_a_key", "`key` of `models:of_a_key` is PRNGKeyArray, expected an array of numbers"),
        ("of_bfloat16", "`x` of `models:of_bfloat16` is of bfloat16, expected an array of numbers"),
        ("unknown_operation", "jax2onnx cannot export `models:unknown_operation`: qr"),
        ("of_one_batch", "fixes the batch of `x` to 3, which jax does not"),
    ],
)
def test_what_is_no_function_of_arrays_is_told_with_what_to_return(
    opened: Callable[[str, str], str], function: str, says: str
) -> None:
    assert says in opened("jax", f"models:{function}")


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras saves tensors of torch
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_files_of_keras_are_read_on_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    import keras

    image = keras.Input((8, 8, 1), name="image")
    x = keras.layers.Flatten()(keras.layers.Conv2D(4, 3)(image))
    keras.Model(image, keras.layers.Dense(3, name="scores")(x)).save(tmp_path / f"net{suffix}")

    model = open_source(tmp_path / f"net{suffix}")

    assert [spec.name for spec in (*model.inputs, *model.outputs)] == ["image", "scores"]
    damaged = bytearray((tmp_path / f"net{suffix}").read_bytes())
    damaged[len(damaged) // 3 :] = b""
    (tmp_path / f"cut{suffix}").write_bytes(damaged)
    with pytest.raises(ConversionError, match=f"Keras cannot read `cut{suffix}`"):
        open_source(tmp_path / f"cut{suffix}")


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_lambda_in_a_file_of_keras_is_not_run(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    import keras

    ran = tmp_path / "ran"
    code = eval(f"lambda x: (open({str(ran)!r}, 'w').close(), x)[1]")
    keras.Sequential([keras.Input((3,)), keras.layers.Lambda(code, output_shape=(3,))]).save(tmp_path / f"net{suffix}")
    ran.unlink(missing_ok=True)

    with pytest.raises(ConversionError, match="Keras cannot read") as caught:
        open_source(tmp_path / f"net{suffix}")

    assert "module:function" in str(caught.value.hint)
    assert not ran.exists()


@pytest.mark.long
@pytest.mark.torch
def test_a_keras_that_runs_the_code_of_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    import keras

    monkeypatch.setattr(keras, "__version__", "3.10.0")
    (tmp_path / "net.h5").write_bytes(b"\x89HDF\r\n\x1a\n")

    with pytest.raises(ConversionError, match=r"Keras 3\.10\.0 runs code that a \.h5 file holds"):
        open_source(tmp_path / "net.h5")


def test_the_command_that_is_told_for_a_saved_model_is_the_guide_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tests/project/test_origins_guide.py` runs it on a model that TensorFlow saves."""
    guide = (ROOT / "docs/guide/origins.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("folder/saved_model.pb").write_bytes(b"whatever")

    with pytest.raises(ConversionError, match="is a SavedModel of TensorFlow") as caught:
        open_source(Path("folder"))

    assert str(caught.value.hint).rpartition("; ")[2] in guide.splitlines()


@pytest.mark.parametrize(
    ("name", "says", "hint"),
    [
        ("model.pb", "a graph of TensorFlow", "tf2onnx.convert --graphdef"),
        ("model.pkl", "a pickle, which runs code", "skops.io.dump"),
        ("model.mlmodel", "a model of Core ML", "the model that it was made from"),
        ("model.pdmodel", "a graph of PaddlePaddle", "paddle2onnx"),
        ("saved_model.pb", "a SavedModel of TensorFlow", "tf2onnx.convert --saved-model"),
        ("model.keras", "is not a .keras file", "model.save"),
        ("model.h5", "is not a .h5 file", "model.save"),
    ],
)
def test_a_file_of_another_tool_is_refused_with_what_exports_it(
    tmp_path: Path, name: str, says: str, hint: str
) -> None:
    (tmp_path / name).write_bytes(b"whatever")

    with pytest.raises(ConversionError, match=says) as caught:
        open_source(tmp_path / name)

    assert hint in str(caught.value.hint)
