"""The options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from analysis.errors import ParameterError

Checkpoint = Annotated[
    Path, typer.Option("--checkpoint", help="A checkpoint file or folder, ours or an official one.")
]
MaybeCheckpoint = Annotated[
    Path | None, typer.Option("--checkpoint", help="Your own checkpoint in place of the shipped ones.")
]
Data = Annotated[Path | None, typer.Option("--data", help="Your own data in place of the embedded default.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="May be given often.")
]
Samples = Annotated[
    int | None, typer.Option("--samples", min=1, help="Examples; the family's default if left out.")
]
Records = Annotated[
    Path | None, typer.Option("--records", help="Folder of the records; .cache/records if left out.")
]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, or cuda:1.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="NOTEBOOK", help="This notebook alone (name or number); may be given often."
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Notebooks at a time.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run again what the cache already holds.")]
Timeout = Annotated[int, typer.Option("--timeout", min=1, help="Seconds that one cell may take.")]
BestDevice = Annotated[str | None, typer.Option("--device", help="cpu or cuda; the best one if left out.")]
Tokens = Annotated[int | None, typer.Option("--tokens", min=1, help="Length of the sequence.")]
Chunk = Annotated[int | None, typer.Option("--chunk", min=1, help="Tokens per chunk.")]
Suite = Annotated[
    str | None,
    typer.Option(
        "--suite",
        metavar="NAMES",
        help="CUDA: ladder, training, first, sweeps, steps, several with commas, or all.",
    ),
]
Budget = Annotated[
    float | None,
    typer.Option("--budget", metavar="SECONDS", min=0, help="CUDA: start nothing that would not fit."),
]
Compilers = Annotated[
    int, typer.Option("--jobs", min=0, help="CUDA: processes that compile everything beforehand.")
]
Corpus = Annotated[
    Path | None,
    typer.Option(
        "--corpus", help="CUDA: folder of the exported text for the suite steps; else the installed packages."
    ),
]


def refuse_options(context: typer.Context) -> None:
    """Refuse options in front of a subcommand, which would be read and never used.

    Raises:
        ParameterError: one was given.
    """
    sources = {
        parameter.opts[0]: context.get_parameter_source(parameter.name or "")
        for parameter in context.command.params
    }
    given = [
        option for option, source in sources.items() if source is not None and source.name == "COMMANDLINE"
    ]
    if given:
        raise ParameterError(
            f"report {context.invoked_subcommand} takes none of the options of report, received {given[0]}; leave it out."
        )
