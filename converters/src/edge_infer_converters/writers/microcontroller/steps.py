"""The steps of a bundle's pipeline that a model in C has beside it."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer_converters.writers.microcontroller import boxes
from edge_infer_converters.writers.microcontroller import features as audio
from edge_infer_converters.writers.microcontroller import image as images
from edge_infer_converters.writers.microcontroller.text import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.tasks.definition import Definition
    from edge_infer.tensors.tensor import TensorSpec
    from edge_infer_converters.writers.microcontroller.boxes import Detector
    from edge_infer_converters.writers.microcontroller.features import Features
    from edge_infer_converters.writers.microcontroller.golden import Golden
    from edge_infer_converters.writers.microcontroller.image import Resized, Source
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
        source: An image of one size and its steps, or None.
        image: What is written of them for the input of the model in C; None until that is known.
        finds: All steps of a bundle whose model finds boxes, or None.
        detector: What is written of those behind the model; None until that is known.
        left_out: Why they are not written; empty where they are, or where there are none.
    """

    features: Features | None = None
    ranks: bool = False
    labels: tuple[str, ...] = ()
    source: Source | None = None
    image: Resized | None = None
    finds: Definition | None = None
    detector: Detector | None = None
    left_out: str = ""


def steps_of(
    definition: Definition,
    labels: Sequence[str],
    inputs: Sequence[TensorSpec],
    source_size: tuple[int, int] | None = None,
) -> Steps:
    """Return those steps of a bundle that are written in C: of sounds and images, and the best classes.

    Args:
        definition: The steps.
        labels: The names of the classes.
        inputs: The inputs of the bundle's model.
        source_size: Width and height of all images; None where their steps are not asked for.

    Raises:
        InputError: Images are asked for, and one of their steps is not written in C.
    """
    last = definition.outputs
    ranks = len(last) == 1 and last[0].name == "post.top_k" and last[0].parameters["threshold"] is None
    source = None if source_size is None else images.source_of(definition, *source_size)
    finds = definition if boxes.is_detector(definition) else None
    named = tuple(labels) if ranks or finds else ()
    return Steps(audio.features_of(definition, inputs), ranks, named, source, finds=finds)


def fitting(steps: Steps, inputs: list[End], outputs: list[End]) -> Steps:
    """Leave out what the model in C does not fit: it may be of other types than the bundle's.

    Raises:
        InputError: The steps of an image do not fit it.
    """
    features = steps.features
    if features is not None and (len(inputs) != 1 or inputs[0].kind != ("int8_t" if features.levels else "float")):
        features = None
    ranks = steps.ranks and len(outputs) == 1 and len(steps.labels) in (0, outputs[0].size)
    image = None if steps.source is None else images.resized_of(steps.source, inputs)
    detector, reason = None, ""
    if steps.finds is not None:
        reason = boxes.reason_against(steps.finds, outputs)
        if not reason:
            item = None if image is None else image.item
            detector = boxes.detector_of(steps.finds, inputs, outputs, steps.labels, item)
    labels = steps.labels if ranks or detector else ()
    return Steps(features, ranks, labels, steps.source, image, steps.finds, detector, reason)


def files(prefix: str, steps: Steps, outputs: list[End]) -> dict[str, str]:
    """Return the text of each file by its name."""
    found = {} if steps.features is None else audio.files(prefix, steps.features)
    if steps.image is not None:
        found |= images.files(prefix, steps.image)
    if steps.detector is not None:
        found |= boxes.files(prefix, steps.detector)
    if not steps.ranks:
        return found
    count = len(steps.labels)
    names = "".join(f"  {quoted(label)},\n" for label in steps.labels)
    words = {"prefix": prefix, "upper": prefix.upper(), "size": str(outputs[0].size)}
    words |= {"kind": outputs[0].kind, "output": outputs[0].name}
    declared = f"\nextern const char *const {prefix}_labels[{count}];\n" if count else ""
    defined = f"\nconst char *const {prefix}_labels[{count}] = {{\n{names}}};\n" if count else ""
    for end, labels in (("h", declared), ("c", defined)):
        text = Template((_FOLDER / f"classes.{end}").read_text())
        found[f"{prefix}_classes.{end}"] = text.substitute(words, labels=labels)
    return found


def tested(prefix: str, steps: Steps, goldens: Sequence[Golden]) -> dict[str, str]:
    """Return what `test_main.c` has of the steps: includes, arrays, and lines in the loop of goldens and after it."""
    words = dict.fromkeys(_TESTED, "")
    if steps.features is not None:
        words["step_includes"] += f'#include "{prefix}_features.h"\n'
        words["step_arrays"], words["step_lines"] = audio.golden(prefix, steps.features)
        _say(words, prefix, audio.FRAMES, "frames of features")
    if steps.image is not None:
        words["step_includes"] += f'#include "{prefix}_image.h"\n'
        words["step_arrays"], words["step_lines"] = images.golden(prefix, steps.image)
        _say(words, prefix, steps.image.height, "rows of the image")
    if steps.detector is not None:
        words["step_includes"] += f'#include "{prefix}_boxes.h"\n'
        arrays, words["step_checks"] = boxes.golden(prefix, steps.detector, goldens)
        words["step_arrays"] += arrays
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


def _say(words: dict[str, str], prefix: str, count: int, what: str) -> None:
    """Count what a step misses, and let the test print it."""
    said = f"of {count} {what} as they should be"
    words["missed"], words["failed"] = ", missed = 0", " + missed"
    words["step_said"] = f'  printf("{prefix}: %d {said}\\n", {count} - missed);\n'
    words["step_printed"] = f'  Serial.print({count} - missed);\n  Serial.println(" {said}");\n'
