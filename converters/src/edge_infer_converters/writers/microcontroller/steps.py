"""The steps of a bundle's pipeline that a model in C has beside it."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer_converters.writers.microcontroller import features as audio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.tasks.definition import Definition
    from edge_infer.tensors.tensor import TensorSpec
    from edge_infer_converters.writers.microcontroller.features import Features
    from edge_infer_converters.writers.microcontroller.golden import Golden
    from edge_infer_converters.writers.microcontroller.text import End

#: The words of a test that are empty without steps.
_TESTED = (
    *("step_includes", "step_arrays", "step_checks", "step_lines", "step_said", "step_printed"),
    *("missed", "failed"),
)
_FOLDER = Path(__file__).parent / "templates"


class Steps(NamedTuple):
    """What stands before and behind a model.

    Attributes:
        features: The features of a sound, or None.
        ranks: Whether the best classes are the answer.
        labels: Their names; empty where there are none.
    """

    features: Features | None = None
    ranks: bool = False
    labels: tuple[str, ...] = ()


def steps_of(definition: Definition, labels: Sequence[str], inputs: Sequence[TensorSpec]) -> Steps:
    """Return those steps of a bundle that are written in C: features of sounds, also quantized, and the best classes.

    Args:
        definition: The steps.
        labels: The names of the classes.
        inputs: The inputs of the bundle's model.
    """
    last = definition.outputs
    ranks = len(last) == 1 and last[0].name == "post.top_k" and last[0].parameters["threshold"] is None
    return Steps(audio.features_of(definition, inputs), ranks, tuple(labels) if ranks else ())


def fitting(steps: Steps, inputs: list[End], outputs: list[End]) -> Steps:
    """Leave out what the model in C does not fit: it may be of other types than the bundle's."""
    features = steps.features
    if features is not None and (len(inputs) != 1 or inputs[0].kind != ("int8_t" if features.levels else "float")):
        features = None
    ranks = steps.ranks and len(outputs) == 1 and len(steps.labels) in (0, outputs[0].size)
    return Steps(features, ranks, steps.labels if ranks else ())


def files(prefix: str, steps: Steps, outputs: list[End]) -> dict[str, str]:
    """Return the text of each file by its name."""
    found = {} if steps.features is None else audio.files(prefix, steps.features)
    if not steps.ranks:
        return found
    count = len(steps.labels)
    names = "".join(f"  {_text(label)},\n" for label in steps.labels)
    words = {"prefix": prefix, "upper": prefix.upper(), "size": str(outputs[0].size)}
    words |= {"kind": outputs[0].kind, "output": outputs[0].name}
    declared = f"\nextern const char *const {prefix}_labels[{count}];\n" if count else ""
    defined = f"\nconst char *const {prefix}_labels[{count}] = {{\n{names}}};\n" if count else ""
    for end, labels in (("h", declared), ("c", defined)):
        text = Template((_FOLDER / f"classes.{end}").read_text())
        found[f"{prefix}_classes.{end}"] = text.substitute(words, labels=labels)
    return found


def _text(label: str) -> str:
    """Return a text as C has it, in ASCII."""
    return (
        '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in label.encode()) + '"'
    )


def tested(prefix: str, steps: Steps, goldens: Sequence[Golden]) -> dict[str, str]:
    """Return what `test_main.c` has of the steps: includes, arrays, and lines in the loop of goldens and after it."""
    words = dict.fromkeys(_TESTED, "")
    if steps.features is not None:
        words["step_includes"] += f'#include "{prefix}_features.h"\n'
        words["step_arrays"], words["step_lines"] = audio.golden(prefix, steps.features)
        words["missed"], words["failed"] = ", missed = 0", " + missed"
        said = f"of {audio.FRAMES} frames of features as they should be"
        words["step_said"] = f'  printf("{prefix}: %d {said}\\n", {audio.FRAMES} - missed);\n'
        words["step_printed"] = f'  Serial.print({audio.FRAMES} - missed);\n  Serial.println(" {said}");\n'
    if steps.ranks:
        words["step_includes"] += f'#include "{prefix}_classes.h"\n'
        best = [np.argsort(-one.outputs[0].reshape(-1).astype(np.float64), kind="stable")[:3] for one in goldens]
        size = len(best[0])
        lines = "".join("  {" + ", ".join(str(index) for index in one) + "},\n" for one in best)
        words["step_arrays"] += f"\nstatic const int best[{len(best)}][{size}] = {{\n{lines}}};\n"
        words["step_checks"] = (
            f"    differs |= {prefix}_top_k({size}, classes) != {size} || "
            "memcmp(classes, best[place], sizeof classes) != 0;\n"
        )
    return words
