"""The command `edge-infer`: a click group whose commands are imported when they are called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from edge_infer.cli import options, output
from edge_infer.errors import EdgeInferError
from edge_infer.platform import guarded

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# The sections of the help. A command `name` is `name` in the module `edge_infer.cli.name`, unless `_ELSEWHERE` has it.
_SECTIONS = {
    "Convert": ("convert", "compile", "chain", "info", "slim", "export-page"),
    "Run": ("run", "predict", "chat", "generate", "tune", "bench", "device"),
    "Search": ("embed", "index"),
    "Serve": ("serve", "feedback"),
    "Sync": ("publish", "store", "pull", "watch"),
    "Check": ("verify", "monitor", "backends", "doctor"),
}
_NAMES = {name for names in _SECTIONS.values() for name in names}
_ELSEWHERE = {"watch": "edge_infer.cli.pull", "export-page": "edge_infer.cli.export_page"}
_FROM_DISTRIBUTIONS = dict.fromkeys(("convert", "compile"), "edge-infer-converters")
# The commands that load models of which nobody knows whether an engine can stand them.
_GUARDED = (
    "bench",
    "chain",
    "compile",
    "convert",
    "embed",
    "index",
    "info",
    "monitor",
    "predict",
    "run",
    "slim",
    "tune",
    "verify",
)


class Commands(click.Group):
    """The built-in commands and those that other distributions add by the entry-point group `edge_infer.commands`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002, D102  click's interface
        return sorted({*_NAMES, *_entry_points()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002, D102
        if cmd_name in _NAMES.difference(_FROM_DISTRIBUTIONS):
            module = import_module(_ELSEWHERE.get(cmd_name, f"edge_infer.cli.{cmd_name}"))
            command: click.Command = getattr(module, cmd_name.replace("-", "_"))
            return command
        points = _entry_points()
        if cmd_name in points:
            loaded: click.Command = points[cmd_name].load()
            return loaded
        if cmd_name in _FROM_DISTRIBUTIONS:
            return _absent(cmd_name, _FROM_DISTRIBUTIONS[cmd_name])
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section; those that other distributions add are the last one."""
        names = self.list_commands(ctx)
        added = tuple(name for name in names if name not in _NAMES)
        width = max(map(len, names))
        for title, section in {**_SECTIONS, "Other distributions": added}.items():
            found = [(name, self.get_command(ctx, name)) for name in section]
            limit = formatter.width - 6 - width
            rows = [(name.ljust(width), one.get_short_help_str(limit)) for name, one in found if one is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command to run, and suggest the nearest where there is none."""
        from edge_infer.errors import did_you_mean

        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            hint = did_you_mean(args[0], self.list_commands(ctx)) if args else ""
            if not hint:
                raise
            raise click.UsageError(f"{error.message}\nhint: {hint}", ctx) from error


def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group="edge_infer.commands")}


def _absent(name: str, distribution: str) -> click.Command:
    """Stand in for the command of a distribution that is not installed: say what to install, exit with 2."""

    @click.command(
        name,
        short_help=f"Needs {distribution}: pip install {distribution}",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    )
    def command() -> None:
        output.error(EdgeInferError(f"`edge-infer {name}` is not installed", hint=f"pip install {distribution}"))
        sys.exit(2)

    return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="edge-infer", prog_name="edge-infer")
@click.option("--debug", is_flag=True, help="Show the traceback of an error; may stand anywhere.")
def cli(debug: bool) -> None:
    """Convert, run, verify and serve models: one file for the browser, Raspberry Pi and CUDA.

    \b
    edge-infer convert model.onnx -o model.bundle
    edge-infer verify model.bundle
    edge-infer serve model.bundle
    edge-infer COMMAND --help                 # what a command does, and examples
    """  # noqa: D301  click reads the \b
    del debug  # `main` has taken it from the arguments, so that commands need not know it


def _said(error: OSError) -> str:
    """Describe what the operating system refused: `No space left on device: model.json`."""
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([error.strerror or str(error), *names])


def main() -> None:
    """Run the command line as `main_here` does; a command that loads models does it in a child process."""
    command = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    if command in _GUARDED:
        try:
            code = guarded.in_child()
        except guarded.Crash as crash:
            output.error(_crashed(command, str(crash)))
            sys.exit(1)
        if code is not None:
            sys.exit(code)
    main_here()


def _crashed(command: str, name: str) -> EdgeInferError:
    if name == "SIGKILL":
        return EdgeInferError(
            f"`{command}` was killed from outside, most likely for want of memory",
            hint="free memory, or use a larger machine",
        )
    return EdgeInferError(
        f"The engine crashed ({name}) during `{command}`", hint="the file may be damaged: convert or fetch it again"
    )


# The names that other tools give to what our options do.
_OTHER_NAMES = {
    "--precision int8": ("--quantize", "--quantise", "--quant", "--int8", "--optimize"),
    "--precision fp16": ("--half", "--fp16", "--float16"),
    "--precision": ("--dtype", "--type", "--bits"),
    "--device cuda": ("--gpu", "--cuda", "--use-gpu"),
    "--device": ("--accelerator",),
    "--backend": ("--engine", "--provider", "--providers", "--runtime", "--ep"),
    "--output": ("--out", "--outfile", "--output-dir", "--out-dir", "--dest"),
    "--calibration": ("--data", "--dataset", "--representative-dataset", "--calib"),
    "--eval": ("--validation", "--val", "--test-data", "--evaluate"),
    "--shape": ("--imgsz", "--input-shape", "--input-shapes", "--batch", "--size"),
    "--labels": ("--classes", "--names", "--class-names"),
    "--force": ("--overwrite", "--yes", "--exist-ok"),
    "--input": ("--data", "--image", "--file"),
    "--threads": ("--num-threads", "--num_threads", "--cpus"),
    "--json": ("--output-json", "--as-json"),
}


def _meant(error: click.NoSuchOption) -> list[str]:
    """Return what our options call what an unknown option means in other tools."""
    known = {flag for one in error.ctx.command.params for flag in one.opts} if error.ctx else set()
    name = error.option_name.partition("=")[0].lower()
    return [ours for ours, others in _OTHER_NAMES.items() if name in others and ours.partition(" ")[0] in known][:1]


def main_here() -> None:
    """Run the command line in this process: exit with 0 when done, 1 when the job failed, 2 on wrong usage."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        sys.exit(cli.main(arguments, prog_name="edge-infer", standalone_mode=False) or 0)
    except (EdgeInferError, OSError) as error:
        if debug:
            raise
        output.error(error if isinstance(error, EdgeInferError) else EdgeInferError(_said(error)))
        sys.exit(1)
    except click.exceptions.Abort:
        output.talk("Interrupted")
        sys.exit(130)
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption):
            meant = _meant(error)
            if meant:
                error = click.UsageError(f"{error.message} Did you mean {' or '.join(meant)}?", error.ctx)
        error.show()
        sys.exit(error.exit_code)
    except Exception as error:
        if debug:
            raise
        said = options.missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
        unknown = EdgeInferError(
            f"{type(error).__name__}: {error}", hint="--debug shows the traceback; please report it"
        )
        output.error(said or unknown)
        sys.exit(1)
