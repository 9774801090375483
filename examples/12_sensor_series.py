"""Watch a machine's vibration, sample by sample, with a recurrent net whose state stays in the engine.

    python examples/12_sensor_series.py [SERIES.csv]

A small GRU learns to foretell the next sample of a healthy motor. On the device it gets one sample at a time; how far
off it is, averaged over a quarter of a second, is the alarm: nobody has to say beforehand what a fault looks like. The
motor is simulated: three axes at 200 Hz, harmonics of a speed that wanders, noise. After 20 s a bearing begins to
knock. A file of your own has three columns, at 200 Hz.

Needs: pip install 'edge-infer[onnxruntime]' torch onnx
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import nn

import edge_infer

RATE = 200
HEALTHY_S, FAULTY_S = 20.0, 10.0
AVERAGE_S = 0.25


def motor(seconds: float, random: np.random.Generator, fault_at: float | None = None) -> np.ndarray:
    """Simulate the acceleration of a motor on three axes: float32 [samples, 3]."""
    t = np.arange(int(seconds * RATE)) / RATE
    wander = np.cumsum(random.normal(0, 0.02, len(t)))
    speed = 12 + 0.5 * np.sin(2 * np.pi * t / 9 + random.uniform(0, 6)) + 0.2 * wander / max(1, np.abs(wander).max())
    angle = 2 * np.pi * np.cumsum(speed) / RATE + random.uniform(0, 6)
    axes = [
        np.sin(angle + shift) + 0.4 * np.sin(2 * angle + 2 * shift) + 0.15 * np.sin(5 * angle + shift)
        for shift in (0.0, 1.6, 3.0)
    ]
    series = np.stack(axes, 1) * [0.6, 0.5, 0.3]
    if fault_at is not None:  # the ball passes a dent 3.6 times in a turn: a short knock each time, mostly sideways
        knock = np.maximum(0, np.cos(3.6 * angle)) ** 30 * (t >= fault_at)
        series += knock[:, None] * [0.25, 0.5, 0.1]
    return (series + random.normal(0, 0.04, series.shape)).astype(np.float32)


class Foretell(nn.Module):
    """One step: a sample and a state become the next sample, as foretold, and the next state."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, width)
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor, h_in: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return y [batch, 3] and h_out [batch, width]."""
        h_out = self.cell(x, h_in)
        return self.head(h_out), h_out


def train(series: np.ndarray, steps: int = 100) -> Foretell:
    """Train on a healthy motor, cut into pieces of half a second."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a net gains nothing from a second one
    pieces = torch.from_numpy(series[: len(series) // steps * steps].reshape(-1, steps, 3))
    net = Foretell()
    whole = nn.GRU(3, net.cell.hidden_size, batch_first=True)  # trains on all steps at once, many times faster
    epochs, batch = 25, 16
    optimizer = torch.optim.Adam([*whole.parameters(), *net.head.parameters()], lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=epochs * -(-len(pieces) // batch))
    for _ in range(epochs):
        for rows in torch.randperm(len(pieces)).split(batch):
            foretold = net.head(whole(pieces[rows])[0])
            # It first has to find out where in its turn the motor is: the first steps do not count.
            loss = nn.functional.mse_loss(foretold[:, 20:-1], pieces[rows, 21:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    net.cell.load_state_dict({name.removesuffix("_l0"): weight for name, weight in whole.state_dict().items()})
    return net.eval()


def export(net: Foretell, path: Path) -> None:
    example = (torch.zeros(1, 3), torch.zeros(1, net.cell.hidden_size))
    names = {"input_names": ["x", "h_in"], "output_names": ["y", "h_out"]}
    torch.onnx.export(net, example, path, dynamo=False, **names)


def errors(series: np.ndarray, model: Path) -> np.ndarray:
    """Return the root of the averaged squared error after each sample, computed one step at a time."""
    found, foretold, average = [], None, 0.0
    share = 1 / (AVERAGE_S * RATE)
    with edge_infer.load(model) as session, session.stream({"h_out": "h_in"}) as stream:
        for sample in series:
            if foretold is not None:
                average += share * (float(((foretold - sample) ** 2).mean()) - average)
            found.append(average)
            foretold = stream.step({"x": sample[None]})["y"][0]
    return np.sqrt(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", metavar="SERIES.csv", nargs="?", type=Path, help="a series to watch, with commas")
    path = parser.parse_args().series
    if path is not None and not path.is_file():
        parser.error(f"there is no file {path}; without one, a motor is simulated")
    warnings.simplefilter("ignore")
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "motor.onnx"
        export(train(motor(90, random)), model)
        print(f"trained on 90 s of a healthy motor: {model.stat().st_size / 1000:.1f} kB")

        settled = int(2 * RATE)
        healthy = errors(motor(20, random), model)[settled:]
        threshold = float(healthy.max() * 1.25)
        print(f"error while healthy: {healthy.mean():.4f}, at most {healthy.max():.4f}; alarm above {threshold:.4f}")

        if path is not None:
            series = np.loadtxt(path, np.float32, delimiter=",")
        else:
            series = motor(HEALTHY_S + FAULTY_S, random, fault_at=HEALTHY_S)
        start = perf_counter()
        found = errors(series, model)
        per_sample = (perf_counter() - start) / len(series)
    alarms = np.flatnonzero((found > threshold) & (np.arange(len(found)) >= settled)) / RATE
    print(f"{len(series)} samples, {per_sample * 1e6:.0f} us each, of {1e6 / RATE:.0f} us that there are")
    if not len(alarms):
        print("no alarm")
        return
    if path is not None:
        print(f"alarm at {alarms[0]:.2f} s")
        return
    false = int((alarms < HEALTHY_S).sum())
    print(f"{false} false alarms in {HEALTHY_S:.0f} s of health")
    late = alarms[alarms >= HEALTHY_S]
    print(
        f"alarm at {late[0]:.2f} s, {late[0] - HEALTHY_S:.2f} s after the bearing began to knock"
        if len(late)
        else "missed"
    )


if __name__ == "__main__":
    main()
