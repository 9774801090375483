"""The options of converting a model that generates text: its precisions and few others; the rest is refused by flag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import InputError, listed
from edge_infer_converters.measure.budget import Budget
from edge_infer_converters.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# By attribute of a recipe the options that fill it: none of them means anything to a model that generates text.
_OPTIONS = {
    "formats": "--format",
    "keep_all": "--keep-all",
    "budget": "--max-loss, --min-sqnr, --max-size, --max-latency-ratio and --metric",
    "targets": "--target",
    "source": "--shape, --dynamic, --bind, --layout, --opset and --allow-baked",
    "tflite_io": "--tflite-io",
    "calibrate": "--calibrate",
    "is_cached": "--no-cache",
    "keep_names": "--keep-names",
    "prunes": "--prune-dead-channels",
    "measures_layers": "--layers",
    "prunes_weak": "--prune",
    "transport": "--transport",
    "goldens": "--goldens",
}


def check_options(
    what: str,
    recipe: Recipe,
    given: Mapping[str, object],
    tasks: Collection[str],
    precisions: Collection[str],
    *,
    measures: bool = False,
) -> tuple[str, ...]:
    """Return the precisions that are asked for, none where none is, and refuse what does not apply.

    Args:
        what: The model in words, such as `A whisper`.
        recipe: What to make.
        given: Further options by their flag; None where one was left out.
        tasks: The tasks that `--task` may name.
        precisions: The precisions that can be made, the preferred first.
        measures: Whether `--calibration` and `--max-loss` mean something to it.

    Raises:
        InputError: An option does not apply, or a precision cannot be made.
    """
    task, usual = given.get("--task"), Recipe(budget=Budget(max_loss=recipe.budget.max_loss if measures else None))
    kept = (*(("--task",) if task in tasks else ()), *(("--calibration",) if measures else ()))
    refused = [flag for flag, value in given.items() if value is not None and flag not in kept]
    refused += [flags for name, flags in _OPTIONS.items() if getattr(recipe, name) != getattr(usual, name)]
    if refused:
        raise InputError(
            f"{what} is converted as its folder says, without {' and '.join(refused)}",
            hint=f"--precision, --name, --model-version, --force{', --calibration, --max-loss' if measures else ''} "
            f"and --task apply; tasks are {listed(list(tasks))}",
            options=refused,
        )
    wanted, allowed = recipe.precisions or (), list(precisions)
    unknown = [one for one in wanted if one not in precisions]
    if unknown:
        raise InputError(
            f"{what} has no precision `{unknown[0]}`; choose from {listed(allowed)}",
            hint=f"--precision {','.join(allowed[:2])}",
            allowed=allowed,
        )
    return tuple(one for one in allowed if one in wanted)
