"""The `pflbench` program: collects the verbs and turns errors into one message and an exit code."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

import pflbench
from pflbench.cli import (
    check,
    common,
    data,
    explain,
    info,
    ls,
    pack,
    plan,
    plot,
    queue,
    report,
    rm,
    run,
    scores,
    show,
    speed,
    status,
    tune,
    upgrade,
)
from pflbench.cli.common import errors
from pflbench.errors import PflbenchError

INTERRUPTED = 130
app = typer.Typer(
    name="pflbench",
    help="Reproducible benchmark tables for personalized federated learning.",
    epilog="With --debug anywhere on the line, an error shows its traceback.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pflbench {pflbench.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command("run")(run.run)
app.command("report")(report.report)
app.command("plot", cls=plot.Command)(plot.plot)
app.command("plan")(plan.plan)
app.command("status")(status.status)
app.command("ls")(ls.ls)
app.add_typer(data.app, name="data")
app.command("explain")(explain.explain)
app.command("scores")(scores.scores)
app.command("show")(show.show)
app.command("pack")(pack.pack)
app.command("upgrade")(upgrade.upgrade)
app.command("rm")(rm.rm)
app.command("queue")(queue.queue)
app.command("tune")(tune.tune)
app.command("check")(check.check)
app.command("speed")(speed.speed)
app.command("info")(info.info)


LISTING = ("ls", "report", "status")
"""Verbs that read much, make nothing, and end."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 a run failed, 2 a wrong request, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in arguments or os.environ.get("PFLBENCH_DEBUG", "") not in ("", "0")
    arguments = [a for a in arguments if a != "--debug"]
    common.show_tracebacks = debug
    warnings.showwarning = _warner()
    with _uncollected() if arguments[:1] and arguments[0] in LISTING else contextlib.nullcontext():
        code = _call(arguments, debug)
    sys.exit(code)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without garbage collection: what a listing reads lives until it ends. Looking is a fifth of its time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _call(arguments: list[str], debug: bool) -> int:
    cause: Exception
    try:
        result = app(args=arguments, prog_name="pflbench", standalone_mode=False)
        if result == INTERRUPTED:  # Typer makes this of a KeyboardInterrupt
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except PflbenchError as error:
        code, message, cause = error.code, str(error), error
    except typer.TyperException as error:
        code, message, cause = error.exit_code, error.format_message(), error
    except (typer.Abort, KeyboardInterrupt):
        errors().print("Interrupted. Finished runs are kept; the same command goes on from there.")
        return INTERRUPTED
    except BrokenPipeError:
        return 1
    except Exception as error:
        message = f"{type(error).__name__}: {error} (a bug in pflbench, or in an extension; --debug tells more)"
        code, cause = 1, error
    if debug:
        traceback.print_exception(cause)
    if message:
        errors().print(f"Error: {message}")
    return code


def _warner() -> Callable[..., None]:
    """A `warnings.showwarning` that prints each text once: several processes may have found the same."""
    said: set[str] = set()

    def warn(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in said:
            said.add(str(message))
            errors().print(f"Warning: {message}")

    return warn
