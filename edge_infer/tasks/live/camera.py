"""Pictures of a camera, the newest one each time."""

from __future__ import annotations

from pathlib import Path
from threading import Condition, Thread
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, UnsupportedError
from edge_infer.platform import installed
from edge_infer.tasks.image.image import Image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_INSTALL = "pip install opencv-python-headless, or on a Raspberry Pi: sudo apt install python3-picamera2"


def frames(camera: int | str = 0) -> Iterator[Image]:
    """Give the pictures of a camera until it ends.

    A thread reads the camera; a picture that is not taken in time is dropped, so that an answer is never of an old one.
    A file does not go on by itself: each of its pictures is given.

        >>> for answer in detect(frames(0)):  # doctest: +SKIP
        ...     print(answer)

    Args:
        camera: Its number, or what OpenCV opens: a file of a video, or the URL of a stream.

    Raises:
        UnsupportedError: Neither OpenCV nor picamera2 is installed.
        InputError: There is no such camera.
    """
    read, close = _opened(camera)
    if isinstance(camera, str) and Path(camera).is_file():
        try:
            yield from iter(read, None)
        finally:
            close()
        return
    newest: list[Image | None] = []
    changed, is_over = Condition(), False

    def watch() -> None:
        while not is_over:
            picture = read()
            with changed:
                newest[:] = [picture] if picture is not None else [*newest, None]
                changed.notify()
            if picture is None:
                return

    thread = Thread(target=watch, name="edge-infer camera", daemon=True)
    thread.start()
    try:
        while True:
            with changed:
                changed.wait_for(lambda: bool(newest))
                picture = newest.pop(0)
            if picture is None:
                return
            yield picture
    finally:
        is_over = True
        thread.join()
        close()


def _opened(camera: int | str) -> tuple[Callable[[], Image | None], Callable[[], None]]:
    """Return what reads the next picture, None at the end, and what closes the camera."""
    if installed.origin_of("cv2") is not None:
        return _by_opencv(camera)
    if installed.origin_of("picamera2") is not None and isinstance(camera, int):
        return _by_picamera(camera)
    raise UnsupportedError("To read a camera takes OpenCV or picamera2, and neither is installed", hint=_INSTALL)


def _by_opencv(camera: int | str) -> tuple[Callable[[], Image | None], Callable[[], None]]:
    import cv2

    capture = cv2.VideoCapture(camera)
    if not capture.isOpened():
        capture.release()
        raise InputError(f"there is no camera `{camera}`", hint="--camera 0 is the first one; ls /dev/video*")

    def read() -> Image | None:
        found, pixels = capture.read()
        return _image(pixels[:, :, ::-1]) if found else None  # OpenCV has blue first

    return read, capture.release


def _by_picamera(camera: int) -> tuple[Callable[[], Image | None], Callable[[], None]]:
    from picamera2 import Picamera2

    device = Picamera2(camera)
    # picamera2's BGR888 has red first in memory.
    device.configure(device.create_video_configuration({"format": "BGR888", "size": (640, 480)}))
    device.start()

    def close() -> None:
        device.stop()
        device.close()

    return lambda: _image(device.capture_array()), close


def _image(pixels: Any) -> Image:
    height, width = pixels.shape[:2]
    return Image(pixels.tobytes(), int(width), int(height), 3)
