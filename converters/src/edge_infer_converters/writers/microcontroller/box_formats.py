"""How each kind of detector is read, in C: the score of a place, and its box."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edge_infer_converters.writers.microcontroller.box_outputs import BY_STRIDE, Output, tensors_of
from edge_infer_converters.writers.microcontroller.text import number, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


FORMATS = ("decoded", "fastestdet", "ssd", "tflite", "yolov5", "yolov8", "yolov10", "yunet")


class Form(NamedTuple):
    """A detector in C.

    Attributes:
        places: What may show an object, in number.
        points: The points of each.
        tables: What stands before the functions.
        score: The body of `is_object`.
        decode: The body of `decode`.
    """

    places: int
    points: int
    tables: str
    score: str
    decode: str


def written(p: Mapping[str, Any], ends: Mapping[str, Output], shapes: Mapping[str, tuple[int, ...]]) -> Form:
    """Return a detector in C.

    Args:
        p: The parameters of `post.boxes`.
        ends: Each output by its name.
        shapes: Of each output, without the batch.
    """
    tensors = tensors_of(p, shapes)
    outputs = {what: ends[name]._replace(what=what) for what, name in tensors.items()}
    made = _WRITTEN[p["format"]](p, outputs, {what: shapes[name] for what, name in tensors.items()})
    return made._replace(tables="".join(one.reader for one in outputs.values()) + made.tables)


_Outputs = dict[str, Output]
_Shapes = dict[str, tuple[int, ...]]


def _best(p: Mapping[str, Any], scores: Output, classes: int) -> tuple[str, str]:
    """Return what `is_object` does with scores of classes, and the function that it needs."""
    first, last = int(p["background"] == "first"), classes - int(p["background"] == "last")
    lines = [f"  {scores.pointer('row', f'place * {classes}')}"]
    chosen = str(first)
    if last - first > 1:
        chosen = "best"
        lines += [
            f"  int best = {first}, k;",
            f"  for (k = {first + 1}; k < {last}; k++) {{",
            "    if (row[k] > row[best]) best = k;",
            "  }",
        ]
    label = chosen if chosen != "best" else "best" + (f" - {first}" if first else "")
    lines.append(f"  *label = {int(label) - first if label.isdigit() else label};")
    if p["activation"] == "sigmoid":
        logit = scores.value(f"row[{chosen}]")
        lines += [f"  if (!({logit} >= LEAST_SCORE)) return 0;", f"  *score = (real)sigmoid({logit});"]
        return "\n".join([*lines, "  return 1;", ""]), _SIGMOID_CLIPPED
    if p["activation"] == "none":
        return "\n".join(
            [*lines, f"  *score = {scores.value(f'row[{chosen}]')};", "  return *score >= LEAST_SCORE;", ""]
        ), ""
    lines.insert(1, f"  double highest = {scores.value('row[0]')}, total = 0, part;")
    lines.insert(2, "  int one;")
    lines += [
        f"  for (one = 1; one < {classes}; one++) {{",
        f"    if ({scores.value('row[one]')} > highest) highest = {scores.value('row[one]')};",
        "  }",
        f"  for (one = 0; one < {classes}; one++) total += exp({scores.value('row[one]')} - highest);",
        f"  part = exp({scores.value(f'row[{chosen}]')} - highest) / total;",
        "  *score = (real)part;",
        "  return part > THRESHOLD;",
        "",
    ]
    return "\n".join(lines), ""


_SIGMOID = """
static double sigmoid(double logit) {
  double power;
CLIP  if (logit >= 0) return 1 / (1 + exp(-logit));
  power = exp(logit);
  return power / (1 + power);
}
"""
_SIGMOID_PLAIN = _SIGMOID.replace("CLIP", "")
_SIGMOID_CLIPPED = _SIGMOID.replace("CLIP", "  if (logit > 100) logit = 100;\n  if (logit < -100) logit = -100;\n")
_EXPONENTIAL = """
/* A side of a box; no longer than an exponent of 80 makes it. */
static double exponential(double value) { return exp(value > 80 ? 80 : value); }
"""


def _decoded(p: Mapping[str, Any], out: _Outputs, shapes: _Shapes) -> Form:
    count, classes = shapes["scores"]
    score, tables = _best(p, out["scores"], classes)
    wide = shapes["boxes"][1]
    lines = [f"  {out['boxes'].pointer('row', f'place * {wide}')}", *_corners(p, out["boxes"])]
    return Form(count, 0, tables, score, "\n".join([*lines, ""]))


def _corners(p: Mapping[str, Any], boxes: Output) -> list[str]:
    """Return the lines that make a box of four numbers, in the step's `order` and `unit`."""
    first, second, third, fourth = (boxes.value(f"row[{k}]") for k in range(4))
    across, down = (" * INPUT_WIDTH", " * INPUT_HEIGHT") if p["unit"] == "ratio" else ("", "")
    if p["order"] == "cxcywh" and across:
        return [
            f"  double x = {first}, y = {second}, width = {third}, height = {fourth};",
            "  made->left = (real)((x - width / 2) * INPUT_WIDTH);",
            "  made->top = (real)((y - height / 2) * INPUT_HEIGHT);",
            "  made->right = (real)((x + width / 2) * INPUT_WIDTH);",
            "  made->bottom = (real)((y + height / 2) * INPUT_HEIGHT);",
        ]
    if p["order"] == "cxcywh":
        return [f"  set_corners(made, {first}, {second}, {third}, {fourth});"]
    order = (second, first, fourth, third) if p["order"] == "yxyx" else (first, second, third, fourth)
    return [
        f"  made->{side} = (real)({one}{across if side in ('left', 'right') else down});"
        for side, one in zip(_SIDES, order, strict=True)
    ]


_SIDES = ("left", "top", "right", "bottom")
#: Where the first numbers of a place lie, channels first.
_COLUMN = ("0", "COUNT", "2 * COUNT", "3 * COUNT", "4 * COUNT")


def _tflite(p: Mapping[str, Any], out: _Outputs, shapes: _Shapes) -> Form:
    classes, count, scores = (out[what].value(f"{out[what].function}()[{at}]") for what, at in _TFLITE)
    score = f"""  int most = (int){count};
  if (place >= most) return 0;
  *label = (int){classes};
  *score = {scores};
  return *score >= LEAST_SCORE;
"""
    lines = [f"  {out['boxes'].pointer('row', 'place * 4')}", *_corners(p, out["boxes"])]
    return Form(int(np.prod(shapes["scores"])), 0, "", score, "\n".join([*lines, ""]))


_TFLITE = (("classes", "place"), ("count", 0), ("scores", "place"))


def _ssd(p: Mapping[str, Any], out: _Outputs, shapes: _Shapes) -> Form:
    count, classes = shapes["scores"]
    wide, points, boxes = shapes["boxes"][1], p["points"], out["boxes"]
    score, tables = _best(p, out["scores"], classes)
    by_y, by_x, by_height, by_width = (repr(float(one)) for one in p["variances"])
    anchors = np.array(p["anchors"], np.float32).reshape(-1, 4)
    listed = ["{" + ", ".join(number(one) for one in anchor) + "}" for anchor in anchors]
    table = [
        "\n/* Of each anchor the centre's x and y, width and height, as parts of the input's sides. */",
        f"static const float anchors[{count}][4] = {{",
        *rows(listed),
        "};",
        "",
    ]
    y, x, h, w = (0, 1, 2, 3) if p["order"] == "yxyx" else (1, 0, 3, 2)
    side = "exponential({})" if p["exponential"] else "{}"
    lines = [
        f"  {boxes.pointer('row', f'place * {wide}')}",
        "  const float *anchor = anchors[place];",
        f"  double x = {boxes.value(f'row[{x}]')} / {by_x} * anchor[2] + anchor[0];",
        f"  double y = {boxes.value(f'row[{y}]')} / {by_y} * anchor[3] + anchor[1];",
        f"  double width = {side.format(boxes.value(f'row[{w}]') + f' / {by_width}')};",
        f"  double height = {side.format(boxes.value(f'row[{h}]') + f' / {by_height}')};",
    ]
    if points:
        lines.append("  int k;")
    lines += [
        "  set_corners(made, x * INPUT_WIDTH, y * INPUT_HEIGHT, width * anchor[2] * INPUT_WIDTH,",
        "              height * anchor[3] * INPUT_HEIGHT);",
    ]
    if points:
        px, py = boxes.value("row[4 + 2 * k]"), boxes.value("row[5 + 2 * k]")
        lines += [
            "  for (k = 0; k < POINTS; k++) {",
            f"    made->points[2 * k] = (real)(({px} / {by_x} * anchor[2] + anchor[0]) * INPUT_WIDTH);",
            f"    made->points[2 * k + 1] = (real)(({py} / {by_y} * anchor[3] + anchor[1]) * INPUT_HEIGHT);",
            "  }",
        ]
    more = _EXPONENTIAL if p["exponential"] else ""
    return Form(count, points, tables + more + "\n".join(table), score, "\n".join([*lines, ""]))


def _yolov5(p: Mapping[str, Any], out: _Outputs, shapes: _Shapes) -> Form:
    del p
    count, wide = shapes["out"]
    row, value = out["out"].pointer("row", f"place * {wide}"), out["out"].value
    score = f"""  {row}
  int best = 5, k;
  if (!({value("row[4]")} >= LEAST_SCORE)) return 0;
  for (k = 6; k < {wide}; k++) {{
    if (row[k] > row[best]) best = k;
  }}
  *label = best - 5;
  *score = {value("row[4]")} * {value("row[best]")};
  return *score >= LEAST_SCORE;
"""
    corners = ", ".join(value(f"row[{k}]") for k in range(4))
    decode = f"""  {row}
  set_corners(made, {corners});
"""
    return Form(count, 0, "", score, decode)


def _yolov8(p: Mapping[str, Any], out: _Outputs, shapes: _Shapes) -> Form:
    channels, count = shapes["out"]
    points = p["points"]
    classes = channels - 4 - 3 * points
    column, value = out["out"].pointer("column", "place"), out["out"].value
    one = "column[(4 + k) * COUNT]"
    corners = ", ".join(value(f"column[{k}]") for k in _COLUMN[:4])
    score = f"""  {column}
  int k;
  *score = -1;
  *label = 0;
  for (k = 0; k < {classes}; k++) {{
    if ({value(one)} > *score) *score = {value(one)}, *label = k;
  }}
  return *score >= LEAST_SCORE;
"""
    decode = f"""  {column}
{"  int k;" if points else ""}
  set_corners(made, {corners});
""".replace("\n\n", "\n")
    if points:
        decode += f"""  for (k = 0; k < POINTS; k++) {{
    made->points[2 * k] = {value(f"column[({4 + classes} + 3 * k) * COUNT]")};
    made->points[2 * k + 1] = {value(f"column[({5 + classes} + 3 * k) * COUNT]")};
  }}
"""
    return Form(count, points, "", score, decode)


def _yolov10(p: Mapping[str, Any], out: _Outputs, shapes: _Shapes) -> Form:
    del p
    count, wide = shapes["out"]
    row, value = out["out"].pointer("row", f"place * {wide}"), out["out"].value
    score = f"""  {row}
  float its = {value("row[5]")};
  *score = {value("row[4]")};
  *label = its >= 0 && its < 32767 ? (int)its : 0;
  return *score >= LEAST_SCORE;
"""
    sides = "".join(f"  made->{side} = {value(f'row[{k}]')};\n" for k, side in enumerate(_SIDES))
    return Form(count, 0, "", score, f"  {row}\n{sides}")


def _yunet(p: Mapping[str, Any], out: _Outputs, shapes: _Shapes) -> Form:
    levels, count = [], 0
    for stride in map(int, p["strides"]):
        places = int(np.prod(shapes[f"cls_{stride}"]))
        functions = ", ".join(out[f"{what}_{stride}"].function for what in BY_STRIDE)
        levels.append(f"  {{{functions}, {stride}, (int)INPUT_WIDTH / {stride}, INT32_C({places})}},")
        count += places
    tables = "\n".join(
        [
            "",
            "/* The outputs of each stride: scores, whether there is an object, boxes and points. */",
            "static const struct level {",
            *(f"  const float *(*{one})(void);" for one in ("classes", "objects", "boxes", "points")),
            "  int stride, columns;",
            "  int32_t places;",
            f"}} levels[{len(levels)}] = {{",
            *levels,
            "};",
            "",
            "/* The stride of a place, and its number there. */",
            "static const struct level *level_of(int32_t *place) {",
            "  const struct level *level = levels;",
            "  while (*place >= level->places) *place -= level++->places;",
            "  return level;",
            "}",
            "",
            "static double inside_1(double value) { return value < 0 ? 0 : value > 1 ? 1 : value; }",
            _EXPONENTIAL,
        ]
    )
    score = """  const struct level *level = level_of(&place);
  double both = sqrt(inside_1(level->classes()[place]) * inside_1(level->objects()[place]));
  *score = (real)both;
  *label = 0;
  return both > THRESHOLD;
"""
    decode = """  const struct level *level = level_of(&place);
  const float *row = level->boxes() + 4 * place, *points = level->points() + 10 * place;
  int32_t column = place % level->columns, line = place / level->columns;
  int k, stride = level->stride;
  double x = ((double)column + row[0]) * stride, y = ((double)line + row[1]) * stride;
  set_corners(made, x, y, exponential(row[2]) * stride, exponential(row[3]) * stride);
  for (k = 0; k < POINTS; k++) {
    made->points[2 * k] = (real)(((double)points[2 * k] + column) * stride);
    made->points[2 * k + 1] = (real)(((double)points[2 * k + 1] + line) * stride);
  }
"""
    return Form(count, 5, tables, score, decode)


def _fastestdet(p: Mapping[str, Any], out: _Outputs, shapes: _Shapes) -> Form:
    del p
    channels, down, across = shapes["out"]
    column, value = out["out"].pointer("column", "place"), out["out"].value
    by_x, by_y, width, height = (value(f"column[{k}]") for k in _COLUMN[1:])
    score = f"""  {column}
  double object = {value("column[0]")}, its, both;
  int best = 5, k;
  for (k = 6; k < {channels}; k++) {{
    if (column[k * COUNT] > column[best * COUNT]) best = k;
  }}
  its = {value("column[best * COUNT]")};
  both = pow(object < 0 ? 0 : object, 0.6) * pow(its < 0 ? 0 : its, 0.4);
  *label = best - 5;
  *score = (real)both;
  return both > THRESHOLD;
"""
    decode = f"""  {column}
  double x = ((double)(place % {across}) + tanh({by_x})) / {across} * INPUT_WIDTH;
  double y = ((double)(place / {across}) + tanh({by_y})) / {down} * INPUT_HEIGHT;
  set_corners(made, x, y, sigmoid({width}) * INPUT_WIDTH, sigmoid({height}) * INPUT_HEIGHT);
"""
    return Form(down * across, 0, _SIGMOID_PLAIN, score, decode)


_WRITTEN: dict[str, Callable[[Mapping[str, Any], _Outputs, _Shapes], Form]] = {
    "decoded": _decoded,
    "fastestdet": _fastestdet,
    "ssd": _ssd,
    "tflite": _tflite,
    "yolov5": _yolov5,
    "yolov8": _yolov8,
    "yolov10": _yolov10,
    "yunet": _yunet,
}
