"""Answers of pipelines as JSON, and whether two of them are the same: by label, score and overlap of boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.tasks.image.image import Image
from edge_infer.tasks.values import flat
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: How far a score may be off, and how much boxes and masks must overlap (intersection over union).
SCORE, OVERLAP = 0.02, 0.9
#: A class that is not more likely than this for a token may be another one elsewhere.
_UNSURE = 0.55
_MAX_VALUES = 64
#: What rounding may leave of a number that is zero.
_TINY = 1e-5
_GRID = 16
_BOX = ("xmin", "ymin", "xmax", "ymax")
#: What names one of several answers: a class, a word of the vocabulary, or a document.
_NAMES = ("label", "token", "corpus_id")


def plain(answer: Any) -> Any:
    """Return an answer as JSON: numbers of six digits, long tensors thinned out, masks as a grid of 16 x 16 points."""
    if isinstance(answer, Tensor):
        values = [float(value) for value in flat(answer)]
        every = -(-len(values) // _MAX_VALUES) or 1
        return {"shape": list(answer.shape), "every": every, "values": [_short(value) for value in values[::every]]}
    if isinstance(answer, Image):
        return {"width": answer.width, "height": answer.height, "points": _points(answer)}
    if isinstance(answer, dict):
        return {key: plain(value) for key, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [plain(value) for value in answer]
    return _short(answer) if isinstance(answer, float) else answer


def difference(expected: Any, got: Any, least: float = 0.0) -> str:
    """Say in what two answers of `plain` differ; an empty text where they are the same.

    Args:
        expected: What is right.
        got: What an engine gave; it may have more classes than are expected.
        least: The score below which detections are not told: those near to it may be there or not.
    """
    try:
        return _difference(expected, got, least)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        return f"the answer has another form ({type(error).__name__}: {error})"


def _difference(expected: Any, got: Any, least: float) -> str:
    if isinstance(expected, dict) and "values" in expected:
        return _of_tensors(expected, got)
    if isinstance(expected, dict) and "points" in expected:
        return _of_pictures(expected, got)
    if isinstance(expected, dict) and "scores" in expected:
        pairs = [
            [{"label": label, "score": score} for label, score in zip(one["labels"], one["scores"], strict=True)]
            for one in (expected, got)
        ]
        return _of_classes(pairs[0], pairs[1], "label")
    if isinstance(expected, dict) and "answer" in expected:
        return _of_spans(expected, got)
    if _is_number(expected) and _is_number(got):
        is_off = abs(got - expected) > SCORE * max(abs(expected), abs(got)) + _TINY
        return f"{got:.6g}, expected {expected:.6g}" if is_off else ""
    if isinstance(expected, dict) and isinstance(got, dict):
        names = dict.fromkeys((*expected, *got))
        return next(filter(None, (_difference(expected.get(name), got.get(name), least) for name in names)), "")
    if not isinstance(expected, list):
        return "" if expected == got else f"{_shown(got)}, expected {_shown(expected)}"
    kinds = [one for one in (*expected, *got) if isinstance(one, dict)]
    if any("box" in one for one in kinds):
        return _of_boxes(expected, got, least) or _of_boxes(got, expected, least, "is not expected")
    if any("mask" in one for one in kinds):
        return _of_masks(expected, got)
    if any("entity" in one or "entity_group" in one for one in kinds):
        return _of_entities(expected, got) or _of_entities(got, expected)
    if kinds and all("label" in one and "score" not in one for one in kinds):
        return _of_anything(expected, got)
    for name in _NAMES:
        if kinds and all(name in one for one in kinds):
            return _of_classes(expected, got, name)
    return _of_anything(expected, got)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _of_tensors(expected: Mapping[str, Any], got: Mapping[str, Any]) -> str:
    if expected["shape"] != got["shape"]:
        return f"a tensor of shape {got['shape']}, expected {expected['shape']}"
    largest = max(map(abs, expected["values"]), default=0.0)
    worst = max((abs(a - b) for a, b in zip(expected["values"], got["values"], strict=True)), default=0.0)
    return f"a value is {worst:.3g} off, with the largest at {largest:.3g}" if worst > SCORE * largest else ""


def _of_pictures(expected: Mapping[str, Any], got: Mapping[str, Any]) -> str:
    """Compare pictures of one size; a few points may be there or not."""
    if (expected["width"], expected["height"]) != (got["width"], got["height"]):
        return f"a picture of {got['width']} x {got['height']}, expected {expected['width']} x {expected['height']}"
    apart = sum(a != b for a, b in zip(expected["points"], got["points"], strict=True))
    return f"a picture differs at {apart} of {_GRID**2} points" if apart > (1 - OVERLAP) * _GRID**2 else ""


def _of_classes(expected: Sequence[Any], got: Sequence[Any], name: str) -> str:
    if not expected:
        return "" if not got else f"{_shown(got)}, expected nothing"
    scores: dict[Any, float] = {}
    for one in got:
        scores.setdefault(one[name], one["score"])  # two classes of one name: the better one counts
    wanted: dict[Any, Mapping[str, Any]] = {}
    for one in expected:
        wanted.setdefault(one[name], one)
    for one in wanted.values():
        close = SCORE * max(1.0, abs(one["score"]))
        if one[name] not in scores:
            if one["score"] > 2 * close:  # a smaller one may have been pushed off the end of the list
                return f"{one[name]!r} is missing, expected at {one['score']:.3f}"
        elif abs(scores[one[name]] - one["score"]) > close:
            return f"{one[name]!r} has {scores[one[name]]:.3f}, expected {one['score']:.3f}"
    best = got[0]
    first = scores.get(expected[0][name], expected[0]["score"])
    if best[name] != expected[0][name] and best["score"] - first > 2 * SCORE * max(1.0, abs(first)):
        return f"{best[name]!r} is the best, expected {expected[0][name]!r}"
    return ""


def _of_spans(expected: Mapping[str, Any], got: Mapping[str, Any]) -> str:
    if abs(expected["score"] - got["score"]) > SCORE:
        return f"a score of {got['score']:.3f}, expected {expected['score']:.3f}"
    is_same = (expected["start"], expected["end"]) == (got["start"], got["end"])
    return "" if is_same or expected["score"] <= 2 * SCORE else f"{got['answer']!r}, expected {expected['answer']!r}"


def _of_boxes(expected: Sequence[Any], got: Sequence[Any], least: float, said: str = "is missing") -> str:
    for one in expected:
        same = [other for other in got if other["label"] == one["label"] and _overlap(one, other) >= OVERLAP]
        if not any(abs(other["score"] - one["score"]) <= SCORE for other in same) and one["score"] - least > SCORE:
            return f"{one['label']!r} at {one['score']:.3f} {said}"
    return ""


def _overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    a, b = ([float(box["box"][side]) for side in _BOX] for box in (one, other))
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0.0) * max(height, 0.0)
    both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return shared / both if both > 0 else float(a == b)


def _of_masks(expected: Sequence[Any], got: Sequence[Any]) -> str:
    """Compare masks of the same class; a class that has few points may be there or not."""
    masks = [{one["label"]: one["mask"]["points"] for one in side} for side in (expected, got)]
    few = (1 - OVERLAP) * _GRID**2
    for label in {**masks[0], **masks[1]}:
        a, b = (side.get(label, "0" * _GRID**2) for side in masks)
        both = sum(x == "1" or y == "1" for x, y in zip(a, b, strict=True))
        shared = sum(x == y == "1" for x, y in zip(a, b, strict=True))
        if both - shared > few or (both > few and shared < OVERLAP * both):
            return f"the mask of {label!r} overlaps by {shared / both:.2f}, expected {OVERLAP}"
    return ""


def _points(mask: Image) -> str:
    """Return a mask at the middles of 16 x 16 cells, row by row."""
    places = [
        ((2 * row + 1) * mask.height // (2 * _GRID)) * mask.width + (2 * column + 1) * mask.width // (2 * _GRID)
        for row in range(_GRID)
        for column in range(_GRID)
    ]
    return "".join("1" if mask.data[at * mask.channels] else "0" for at in places)


def _of_entities(expected: Sequence[Any], got: Sequence[Any]) -> str:
    scores = {(one["start"], one["end"], one.get("entity", one.get("entity_group"))): one["score"] for one in got}
    for one in expected:
        key = (one["start"], one["end"], one.get("entity", one.get("entity_group")))
        if one["score"] > _UNSURE and (key not in scores or abs(scores[key] - one["score"]) > SCORE):
            return f"{key[2]!r} from {key[0]} to {key[1]} has {scores.get(key, 0):.3f}, expected {one['score']:.3f}"
    return ""


def _of_anything(expected: Any, got: Any) -> str:
    if isinstance(expected, (int, float)) and isinstance(got, (int, float)) and not isinstance(expected, bool):
        is_near = abs(expected - got) <= SCORE * max(1.0, abs(expected))
        return "" if is_near else f"{got:.4g}, expected {expected:.4g}"
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        return next(filter(None, map(_of_anything, expected, got)), "")
    if isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        return next(filter(None, (_of_anything(expected[key], got[key]) for key in expected)), "")
    return "" if expected == got else f"{_shown(got)}, expected {_shown(expected)}"


def _short(value: float) -> float:
    return float(f"{value:.6g}") if value - value == 0 else 0.0


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
