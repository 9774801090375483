"""Operators of images: sampling by grids, regions, and boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.backends.reference.operators.shapes import ints

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator


def affine_grid(call: Call, theta: Array, size: Array) -> Array:
    """Compute AffineGrid."""
    sizes = ints(size)[2:]
    lines = []
    for count in sizes:
        if call.get("align_corners", 0):
            lines.append(np.linspace(-1, 1, count) if count > 1 else np.array([-1.0]))
        else:
            lines.append((2 * np.arange(count) + 1) / count - 1)
    grid = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*grid[::-1], np.ones(sizes)], -1).reshape(-1, len(sizes) + 1)
    moved = np.matmul(points, theta.astype(np.float64).swapaxes(1, 2))
    return moved.reshape(theta.shape[0], *sizes, len(sizes)).astype(theta.dtype)


def _reflected(x: Array, low: float, high: float) -> Array:
    span = high - low
    if span <= 0:
        return np.zeros_like(x)
    turns = np.mod(x - low, 2 * span)
    return low + np.where(turns > span, 2 * span - turns, turns)


def grid_sample(call: Call, x: Array, grid: Array) -> Array:
    """Compute GridSample."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(call.get("mode", "linear"), call.get("mode", "linear"))
    padding, corners = call.get("padding_mode", "zeros"), bool(call.get("align_corners", 0))
    sizes = x.shape[2:]
    result = np.zeros((x.shape[0], x.shape[1], *grid.shape[1:-1]), x.dtype)
    places: list[Array] = []
    for i, size in enumerate(sizes):
        at = grid[..., len(sizes) - 1 - i].astype(np.float64)
        at = (at + 1) / 2 * (size - 1) if corners else ((at + 1) * size - 1) / 2
        low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
        if mode == "nearest":
            at = np.rint(at)
        outside = (at < low) | (at > high)
        if padding == "border" and mode != "cubic":  # whose weights are of where it lies, also outside
            at = np.where(outside, np.clip(at, 0, size - 1), at)
        elif padding == "reflection":
            at = np.where(outside, _reflected(at, low, high), at)
        places.append(at)
    steps = {"nearest": [0], "linear": [0, 1], "cubic": [-1, 0, 1, 2]}[mode]
    for combination in np.ndindex(*(len(steps),) * len(sizes)):
        share: Any = 1.0
        inside: Any = True
        index = []
        for i, choice in enumerate(combination):
            size, at = sizes[i], places[i]
            base = np.floor(at) if mode != "nearest" else at
            tap = base + steps[choice]
            share = share * _weight(mode, tap - at)
            if padding == "reflection":
                low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
                tap = np.trunc(np.where((tap < low) | (tap > high), _reflected(tap, low, high), tap))
            elif padding == "zeros":
                inside = inside & (tap >= 0) & (tap < size)
            index.append(np.clip(tap, 0, size - 1).astype(np.intp))
        for n in range(x.shape[0]):
            seen = x[n][(slice(None), *(one[n] for one in index))]
            part = seen * (share[n] if np.ndim(share) else share)
            result[n] += (part if inside is True else np.where(inside[n], part, 0)).astype(x.dtype)
    return result


def _weight(mode: str, distance: Array) -> Any:
    if mode == "nearest":
        return 1.0
    size = np.abs(distance)
    if mode == "linear":
        return np.clip(1 - size, 0, 1)
    a = -0.75
    near = ((a + 2) * size - (a + 3)) * size * size + 1
    return np.where(size <= 1, near, ((a * size - 5 * a) * size + 8 * a) * size - 4 * a)


def roi_align(call: Call, x: Array, rois: Array, batch: Array) -> Array:
    """Compute RoiAlign: means or largest of samples between pixels."""
    rows, columns = call.get("output_height", 1), call.get("output_width", 1)
    scale, ratio = call.get("spatial_scale", 1.0), call.get("sampling_ratio", 0)
    half = call.get("coordinate_transformation_mode", "half_pixel" if call.opset >= 16 else "") == "half_pixel"
    is_mean = call.get("mode", "avg") == "avg"
    result = np.zeros((rois.shape[0], x.shape[1], rows, columns), x.dtype)
    for n, roi in enumerate(rois.astype(np.float64)):
        left, top, right, bottom = roi * scale - (0.5 if half else 0.0)
        width, height = right - left, bottom - top
        if not half:
            width, height = max(width, 1.0), max(height, 1.0)
        by_y = ratio if ratio > 0 else int(np.ceil(height / rows))
        by_x = ratio if ratio > 0 else int(np.ceil(width / columns))
        if not by_y or not by_x:
            continue
        y = top + (np.arange(rows * by_y) + 0.5) * height / (rows * by_y)
        z = left + (np.arange(columns * by_x) + 0.5) * width / (columns * by_x)
        parts = _corners(x[int(batch[n])], y, z)
        shape = (x.shape[1], rows, by_y, columns, by_x)
        if is_mean:
            result[n] = np.sum(parts, 0).reshape(shape).mean((2, 4)).astype(x.dtype)
        else:
            result[n] = np.max(np.stack(parts), 0).reshape(shape).max((2, 4)).astype(x.dtype)
    return result


def _corners(x: Array, y: Array, z: Array) -> list[Array]:
    """Return the shares of the four pixels around each sample of a grid."""
    height, width = x.shape[1:]
    inside = ((y >= -1) & (y <= height))[:, None] & ((z >= -1) & (z <= width))
    y, z = np.clip(y, 0, None), np.clip(z, 0, None)
    top, left = np.minimum(y.astype(int), height - 1), np.minimum(z.astype(int), width - 1)
    y, z = np.where(top >= height - 1, top, y), np.where(left >= width - 1, left, z)
    down, over = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
    a, b = (y - top)[:, None], z - left
    shares = [(top, left, (1 - a) * (1 - b)), (top, over, (1 - a) * b), (down, left, a * (1 - b)), (down, over, a * b)]
    return [x[:, i[:, None], j] * np.where(inside, share, 0) for i, j, share in shares]


def non_max_suppression(
    call: Call,
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    least: Array | None = None,
) -> Array:
    """Compute NonMaxSuppression: boxes by their scores, those that overlap a better one left out."""
    limit = 0 if most is None else int(np.asarray(most).reshape(-1)[0])
    threshold = 0.0 if overlap is None else float(np.asarray(overlap).reshape(-1)[0])
    lowest = None if least is None else float(np.asarray(least).reshape(-1)[0])
    found: list[tuple[int, int, int]] = []
    for batch, kind in np.ndindex(scores.shape[:2]):
        corners = _box_corners(boxes[batch].astype(np.float64), bool(call.get("center_point_box", 0)))
        order = np.argsort(-scores[batch, kind], kind="stable")
        kept: list[int] = []
        for i in order:
            if len(kept) >= limit:
                break
            if lowest is not None and scores[batch, kind, i] <= lowest:
                break
            if all(_overlap(corners[i], corners[j]) <= threshold for j in kept):
                kept.append(int(i))
        found += [(batch, kind, i) for i in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def _box_corners(boxes: Array, is_centered: bool) -> Array:
    if is_centered:
        x, y, width, height = boxes.T
        return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], 1)
    first, second = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1)


def _overlap(a: Array, b: Array) -> float:
    height = min(a[2], b[2]) - max(a[0], b[0])
    width = min(a[3], b[3]) - max(a[1], b[1])
    if height <= 0 or width <= 0:
        return 0.0
    both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - height * width
    return float(height * width / both)


def max_roi_pool(call: Call, x: Array, rois: Array) -> Array:
    """Compute MaxRoiPool."""
    rows, columns = call.get("pooled_shape", [1, 1])
    result = np.zeros((rois.shape[0], x.shape[1], rows, columns), x.dtype)
    for n, (batch, *corners) in enumerate(rois):
        left, top, right, bottom = (int(np.floor(one * call.get("spatial_scale", 1.0) + 0.5)) for one in corners)
        height, width = max(bottom - top + 1, 1), max(right - left + 1, 1)
        for i, j in np.ndindex(rows, columns):
            y = slice(max(0, top + i * height // rows), max(0, top + -(-(i + 1) * height // rows)))
            z = slice(max(0, left + j * width // columns), max(0, left + -(-(j + 1) * width // columns)))
            part = x[int(batch), :, y, z]
            if part.size:
                result[n, :, i, j] = part.max((1, 2))
    return result


def image_decoder(call: Call, encoded: Array) -> Array:
    """Compute ImageDecoder, with Pillow."""
    import io

    from PIL import Image

    picture = Image.open(io.BytesIO(encoded.tobytes()))
    kind = call.get("pixel_format", "RGB")
    if kind == "Grayscale":
        return np.array(picture.convert("L"))[:, :, None]
    decoded = np.array(picture.convert("RGB"))
    return decoded[:, :, ::-1] if kind == "BGR" else decoded


OPERATORS: dict[str, Operator] = {
    "AffineGrid": affine_grid,
    "GridSample": grid_sample,
    "ImageDecoder": image_decoder,
    "MaxRoiPool": max_roi_pool,
    "NonMaxSuppression": non_max_suppression,
    "RoiAlign": roi_align,
}
