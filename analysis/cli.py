"""The command line `ttt-analysis`: few verbs, each importing what it needs when it is called.

A mistake that the caller can repair (`AnalysisError`) ends in one sentence on standard error and exit code 2; anything
else keeps its traceback, because then the program is at fault.
"""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from analysis.commands.options import (
    Assignments,
    BestDevice,
    Budget,
    Checkpoint,
    Chunk,
    Compilers,
    Corpus,
    Data,
    Device,
    Fresh,
    Jobs,
    MaybeCheckpoint,
    Only,
    Records,
    Samples,
    Suite,
    Timeout,
    Tokens,
    refuse_options,
)
from analysis.errors import AnalysisError, ParameterError

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich alone would double the time that --help takes
    help="Test-time training layers as linear attention: load, edit, measure, report.",
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.", is_eager=True)
    ] = False,
) -> None:
    if version:
        from analysis import __version__

        typer.echo(f"ttt-analysis {__version__}")
        raise typer.Exit(0)


@app.command()
def ladder(
    chunks: Annotated[int, typer.Option("--chunks", min=1, help="Length of the sequence in chunks.")] = 4,
) -> None:
    """Show the ablation ladder (Table 2) and which rungs have a parallel form."""
    from analysis.commands import show

    show.show(show.ladder_table(chunks))


@app.command()
def inspect(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint file or folder.")],
    weights: Annotated[
        str | None, typer.Option("--weights", help="model or ema, where a file has both.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="For files that carry no configuration.")
    ] = None,
) -> None:
    """Show what a checkpoint holds: family, size, and the inner loops it was trained with."""
    from analysis.commands import show

    show.show(show.checkpoint_table(checkpoint, weights, config))


@app.command()
def verify() -> None:
    """Check the paper's theorems on random tensors in float64; exit code 1 if one does not come out as stated."""
    from analysis.commands import run

    raise typer.Exit(run.verify())


@app.command()
def probe(
    name: Annotated[str, typer.Argument(help="Which question; a wrong name lists them.")],
    checkpoint: Checkpoint,
    assignments: Assignments = None,
    data: Data = None,
    samples: Samples = None,
    device: Device = "cpu",
    store: Records = None,
) -> None:
    """Put one question to a trained model and show the records."""
    from analysis.commands import run

    run.probe(name, checkpoint, assignments or (), data=data, samples=samples, device=device, store=store)


@app.command()
def evaluate(
    checkpoint: Checkpoint,
    assignments: Assignments = None,
    data: Data = None,
    samples: Samples = None,
    device: Device = "cpu",
    store: Records = None,
) -> None:
    """Measure the task metric of a checkpoint, as trained or with --set FIELD=VALUE on its inner loops."""
    from analysis.commands import run

    name = "evaluation"
    run.probe(name, checkpoint, assignments or (), data=data, samples=samples, device=device, store=store)


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe by name (see `recipes`).")],
    assignments: Assignments = None,
    data: Data = None,
    output: Annotated[Path | None, typer.Option("--output", help="Folder of the checkpoint.")] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu or cuda; the best one if left out.")
    ] = None,
) -> None:
    """Train one recipe; under torchrun, on every device that it was given."""
    from analysis.commands import run

    run.train(recipe, assignments or (), data=data, output=output, device=device)


@app.command()
def recipes(
    pattern: Annotated[str, typer.Argument(help="Part of the name, for example vittt or paper.")] = "",
) -> None:
    """List the recipes that `train` knows."""
    from analysis.commands import run

    run.recipes(pattern)


@app.command()
def bench(
    device: BestDevice = None,
    tokens: Tokens = None,
    chunk: Chunk = None,
    suite: Suite = None,
    budget: Budget = None,
    store: Records = None,
    jobs: Compilers = 0,
    corpus: Corpus = None,
) -> None:
    """Measure speed, each shape only after it agrees with float64: the kernels on a CUDA device, else the backends."""
    from analysis.commands import bench as verb

    choice = verb.Choice(device, tokens, chunk, suite, budget, store, jobs, corpus)
    raise typer.Exit(verb.run(choice))


@app.command()
def figures(
    only: Only = None,
    assignments: Assignments = None,
    jobs: Jobs = 2,
    timeout: Timeout = 1800,
    fresh: Fresh = False,
    output: Annotated[Path | None, typer.Option("--output", help="Folder in place of figures/.")] = None,
) -> None:
    """Draw every figure by running its notebook; what the cache holds is written from there unless --fresh."""
    from analysis.commands import publish

    chosen = publish.Selection(
        only=only or (), assignments=assignments or (), jobs=jobs, timeout=timeout, fresh=fresh
    )
    publish.figures(chosen, output)


report_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
app.add_typer(report_app, name="report")


@report_app.callback()
def report(
    context: typer.Context,
    checkpoint: MaybeCheckpoint = None,
    data: Data = None,
    only: Only = None,
    assignments: Assignments = None,
    jobs: Jobs = 2,
    timeout: Timeout = 1800,
    fresh: Fresh = False,
    pdf_engine: Annotated[
        str, typer.Option("--pdf-engine", help="auto, plutoprint, chromium or none.")
    ] = "auto",
    require_pdf: Annotated[bool, typer.Option(help="Whether a PDF that cannot be made is an error.")] = True,
    output: Annotated[Path | None, typer.Option("--output", help="Folder in place of report/.")] = None,
) -> None:
    """Make the report, or compare two of them (report diff).

    Runs the notebooks and writes report/index.html, report/report.pdf and the figures.
    """
    if context.invoked_subcommand is not None:
        refuse_options(context)
        return
    from analysis.commands import publish

    chosen = publish.Selection(
        checkpoint=checkpoint,
        data=data,
        only=only or (),
        assignments=assignments or (),
        jobs=jobs,
        timeout=timeout,
        fresh=fresh,
    )
    publish.report(chosen, pdf_engine=pdf_engine, require_pdf=require_pdf, output=output)


@report_app.command()
def diff(
    first: Annotated[Path, typer.Argument(help="A report folder, or its index.html.")],
    second: Annotated[Path, typer.Argument(help="The report to compare it with.")],
) -> None:
    """Compare two reports (two checkpoints, two commits) claim by claim; exit code 1 when a verdict or a value differs."""
    from analysis.commands import publish

    raise typer.Exit(publish.diff(first, second))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code: 0, 1 (a finding), 2 (a mistake), 130 (interrupted)."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's kill cleans up as Ctrl-C does
    sys.exit(_run(sys.argv[1:] if arguments is None else arguments))


_INTERRUPTED = 130
# typer exports this class's child alone
_UsageError: type[typer.BadParameter] = typer.BadParameter.__base__  # type: ignore[assignment]


def _run(arguments: list[str]) -> int:
    try:
        _refuse_empty(arguments)
        result = app(args=arguments or ["--help"], prog_name="ttt-analysis", standalone_mode=False)
    except AnalysisError as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:
        place = "" if error.filename is None else f" at {error.filename}"
        said = f"expected files that can be read and written, received: {error.strerror or error}{place}"
        typer.echo(f"error: {said}; change the permissions, free space, or name another place", err=True)
        return 2
    except _UsageError as error:
        said = error.format_message().rstrip(".")
        typer.echo(f"error: {said}. See ttt-analysis {_verb(arguments)}--help.", err=True)
        return 2
    except KeyboardInterrupt:
        result = _INTERRUPTED
    if result == _INTERRUPTED:  # typer turns Ctrl-C into this number without a word
        typer.echo("interrupted: what was finished is kept, and no output is half written", err=True)
    return result if isinstance(result, int) else 0


def _refuse_empty(arguments: list[str]) -> None:
    """An empty path would mean the current folder; it comes from a variable that is not set."""
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if argument == "" or re.fullmatch(r"--[a-z-]+=", argument):
            place = (
                before
                if argument == "" and before.startswith("--")
                else argument.rstrip("=") or "an argument"
            )
            raise ParameterError(f"{place} expects a value, received none; fill it in or leave it out.")


def _verb(arguments: list[str]) -> str:
    """Return the command that was called, with a blank behind it, as far as its words are known."""
    command, words = typer.main.get_command(app), []
    for word in arguments:
        if found := getattr(command, "commands", {}).get(word):
            command = found
            words.append(f"{word} ")
    return "".join(words)
