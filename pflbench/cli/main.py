"""The `pflbench` program: collects the verbs and turns errors into one message and an exit code."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import cache
from typing import Annotated

import typer

from pflbench import trust
from pflbench.cli import common
from pflbench.cli.common import errors
from pflbench.errors import PflbenchError
from pflbench.package import __version__

INTERRUPTED = 130
VERBS = (
    *("run", "report", "plot", "explain", "claims", "plan", "status", "ls", "show", "scores"),
    *("check", "tune", "rerun", "compare", "pack", "merge", "rm", "data", "cite", "info"),
)
"""In the order of the help. Each is a function of its name, or a group's `app`, in its own module or one of `HOME`."""
HOME = {
    **{"plan": "run", "explain": "report", "status": "ls"},
    **dict.fromkeys(("scores", "show", "pack", "merge", "rm"), "stored"),
}
"""The modules of verbs that share one."""

# Nothing here is for plugins of pydantic to change; to look for some is to read about every installed package.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


WELCOME = """\
Benchmark tables for personalized federated learning: every method as its paper has it, every number traceable to a
run, the paper's number beside it.

\b
pflbench run -s cafeme-table1 --profile smoke   train a small table in minutes
pflbench ls suites                              list the tables
pflbench plan -s cafeme-table1                  hours of the paper's protocol

`pflbench VERB --help` explains a verb."""


def program(verb: str | None = None) -> typer.Typer:
    """The program with every verb, or with one alone: making the others ready takes longer than most of them run."""
    app = typer.Typer(
        name="pflbench",
        help=WELCOME,
        epilog="With --debug anywhere on the line, an error shows its traceback.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # whose panels take three times the lines
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in VERBS if verb is None else [verb]:
        module = importlib.import_module(f"pflbench.cli.{HOME.get(name, name)}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            made: Callable[..., int] = getattr(module, name)
            app.command(name, short_help=summary(made))(made)
    return app


def summary(verb: Callable[..., object]) -> str:
    """First paragraph of a verb's docstring, for the list of verbs."""
    return " ".join((inspect.getdoc(verb) or "").partition("\n\n")[0].split())


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pflbench {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 a run failed, 2 a wrong request, 75 stopped, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    common.show_tracebacks = debug = "--debug" in arguments
    _open_streams()
    trust.revoke_all()
    warn = cache(lambda text: _say(f"Warning: {text}"))  # each text once: several processes may have found it
    warnings.showwarning = lambda message, *_, **__: warn(str(message))
    sys.exit(_call([one for one in arguments if one != "--debug"] or ["--help"], debug))


def _open_streams() -> None:
    """Open the standard streams that the caller closed, and forget a terminal of no size."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # in the order of their descriptors
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123
    for name in ("COLUMNS", "LINES"):
        if not os.environ.get(name, "1").strip("0"):
            del os.environ[name]


def _say(text: str) -> None:
    """Print to standard error, where it can be written."""
    with contextlib.suppress(OSError):
        errors().print(text)


def _discard_output() -> None:
    """Send what standard output still holds nowhere, since Python would fail to write it at its end."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: it is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unexpected(error: Exception) -> str:
    """Message for an error that no verb foresees: of memory, of files and outputs, or of the code."""
    if isinstance(error, MemoryError):
        return f"Out of memory{f' ({error})' if str(error) else ''}: choose fewer seeds, rows, columns or clients."
    if isinstance(error, OSError):
        _discard_output()
        where = f"{error.filename!r}" if error.filename else "standard output or a file"
        return f"Cannot read or write {where}: {error.strerror or error}."
    return f"{type(error).__name__}: {error} (a bug in pflbench, or in an extension; --debug tells more)"


def _call(arguments: list[str], debug: bool) -> int:
    cause: Exception
    app = program(arguments[0] if arguments[0] in VERBS else None)
    try:
        result = app(args=arguments, prog_name="pflbench", standalone_mode=False)
        if result == INTERRUPTED:  # Typer makes this of a KeyboardInterrupt
            raise KeyboardInterrupt
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except PflbenchError as error:
        code, message, cause = error.code, str(error), error
    except typer.TyperException as error:
        code, message, cause = error.exit_code, error.format_message(), error
    except (typer.Abort, KeyboardInterrupt):
        _say("Interrupted. Finished runs are kept; the same command goes on from there.")
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return 1
    except Exception as error:
        code, message, cause = 1, _unexpected(error), error
    if debug:
        traceback.print_exception(cause)
    if message:
        _say(f"Error: {message}")
    return code
