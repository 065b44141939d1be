"""The options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
