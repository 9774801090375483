"""Read digits that are held before a camera, frame by frame, on the newest frame always.

    python examples/10_camera_loop.py              # a film that it draws itself: three cards with noise
    python examples/10_camera_loop.py film.npy     # uint8 [frames, height, width], bright ink on dark paper
    python examples/10_camera_loop.py --camera     # a Raspberry Pi's camera; Ctrl-C stops

A camera does not wait: a thread of its own takes frames and keeps the newest, so that a slow model sees fewer frames
and never old ones. A film waits, so that each of its frames is seen. A digit counts once it was the answer to five
frames in a row; a single frame may be wrong.

Needs: pip install 'edge-infer[onnxruntime]' numpy; for --camera: sudo apt-get install python3-picamera2
"""

from __future__ import annotations

import argparse
from pathlib import Path
from threading import Condition, Thread
from time import perf_counter
from typing import TYPE_CHECKING

import digits_app
import numpy as np

import edge_infer

if TYPE_CHECKING:
    from collections.abc import Iterator

STEADY_FRAMES = 5
SURE = 0.8
NOISE_FLOOR = 96  # of 255: darker than ink, brighter than the noise of a sensor


def film(random: np.random.Generator) -> np.ndarray:
    """Draw cards that move past, one after another, with empty frames between them: uint8 [frames, 240, 320]."""
    frames = []
    for text in digits_app.DRAWINGS.values():
        pixels, width, height = digits_app.drawing(text, scale=10)
        card = np.frombuffer(pixels, np.uint8).reshape(height, width)
        for step in range(20):
            frame = np.zeros((240, 320), np.uint8)
            top, left = 20 + step, 20 + 6 * step
            frame[top : top + height, left : left + width] = card
            frames.append(frame)
        frames += [np.zeros((240, 320), np.uint8)] * 8
    clean = np.stack(frames).astype(np.int16)
    return np.clip(clean * 0.8 + random.normal(20, 12, clean.shape), 0, 255).astype(np.uint8)


class Camera:
    """The newest frame of a Raspberry Pi's camera, taken by a thread of its own."""

    def __init__(self) -> None:
        try:
            from picamera2 import Picamera2
        except ImportError as error:
            raise SystemExit(f"{error}: sudo apt-get install python3-picamera2") from error

        self.dropped = 0
        self._camera = Picamera2()
        self._camera.configure(self._camera.create_video_configuration(main={"size": (320, 240), "format": "YUV420"}))
        self._camera.start()
        self._newest: np.ndarray | None = None
        self._changed = Condition()
        Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        while True:
            frame = 255 - self._camera.capture_array("main")[:240, :320]  # the first plane is brightness
            with self._changed:
                self.dropped += self._newest is not None
                self._newest = frame
                self._changed.notify()

    def __iter__(self) -> Iterator[np.ndarray]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._newest is not None)
                frame, self._newest = self._newest, None
            assert frame is not None
            yield frame


def read(frames: Iterator[np.ndarray], call: edge_infer.PreparedCall) -> Iterator[tuple[int, int | None]]:
    """Give for each frame its number, and the digit that is now steadily seen; None where there is none."""
    last, run = None, 0
    for number, frame in enumerate(frames):
        ink = np.where(frame < NOISE_FLOOR, 0, frame).astype(np.uint8)
        image = digits_app.to_image(ink.tobytes(), ink.shape[1], ink.shape[0])
        digit = None
        if image is not None:
            memoryview(call.inputs["image"]).cast("B")[:] = memoryview(image).cast("B")
            scores = digits_app.softmax(call()["logits"][0].tolist())
            digit = max(range(10), key=scores.__getitem__) if max(scores) > SURE else None
        run = run + 1 if digit == last else 1
        last = digit
        yield number, digit if run >= STEADY_FRAMES else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("film", metavar="film.npy", nargs="?", type=Path, help="a film to read")
    parser.add_argument("--camera", action="store_true", help="read from a Raspberry Pi's camera")
    asked = parser.parse_args()
    if asked.film is not None and not asked.film.is_file():
        parser.error(f"there is no file {asked.film}; without one, a film is drawn")
    camera = Camera() if asked.camera else None
    if camera is not None:
        frames = iter(camera)
    else:
        frames = iter(film(np.random.default_rng(0)) if asked.film is None else np.load(asked.film))

    seen: list[int] = []
    count, start, shown = 0, perf_counter(), None
    with edge_infer.load(digits_app.MODEL) as session, session.prepare({"image": (1, 1, 8, 8)}) as call:
        try:
            for number, digit in read(frames, call):
                count += 1
                if digit is not None and digit != shown:
                    print(f"frame {number:3}: {digit}")
                    seen.append(digit)
                shown = digit if digit is not None else shown if camera else None
        except KeyboardInterrupt:
            pass
    per_s = count / (perf_counter() - start)
    print(f"{count} frames, {per_s:.0f} a second, {camera.dropped if camera else 0} dropped")
    print(f"seen: {' '.join(map(str, seen))}")


if __name__ == "__main__":
    main()
