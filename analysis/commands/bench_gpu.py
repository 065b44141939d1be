"""`bench` on a CUDA device: correctness, then speed, one record a time; `python -m analysis.commands.bench_gpu --help`.

It needs torch and Triton alone, so that it also runs where the rest of the environment is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.errors import AnalysisError, ParameterError, closest

if TYPE_CHECKING:
    from analysis.records import Record

MODULE = "analysis.commands.bench_gpu"


def bench_gpu(
    *,
    suite: str = "all",
    device: str = "cuda",
    tokens: int | None = None,
    chunk: int | None = None,
    budget: float | None = None,
    records: Path | None = None,
    jobs: int = 0,
    corpus: Path | None = None,
    share: str = "",
) -> int:
    """Measure the chosen suites and show every result as it comes; return 1 when a case failed, else 0.

    Raises:
        ParameterError: an unknown suite, or no such device.
        StorageError: the folder of the records cannot be written.
    """
    from analysis.kernels.cases import Case
    from analysis.speed import jobs as work

    suites = chosen(suite)
    _require(device)
    sizes = {name: value for name, value in (("tokens", tokens), ("chunk", chunk)) if value}
    settings = work.Settings(
        suites=suites,
        base=replace(Case("baseline", "recurrent"), **sizes),  # type: ignore[arg-type]
        corpus=corpus,
        is_prepared=jobs > 0,
    )
    if share:
        part, parts = (int(number) for number in share.split("/"))
        work.compile_share(settings, part, parts)
        return 0
    return _measure(settings, budget, records, jobs, [*_again(suite, device, sizes)])


def chosen(suite: str) -> tuple[str, ...]:
    """Return the suites that a comma-separated list names, in the order in which they run.

    Raises:
        ParameterError: an unknown name.
    """
    from analysis.speed.suites import SUITES

    names = [name.strip() for name in suite.split(",")]
    for name in names:
        if name not in (*SUITES, "all"):
            raise ParameterError(
                f"--suite expects {', '.join(SUITES)} or all, received {name!r}{closest(name, (*SUITES, 'all'))}."
            )
    return SUITES if "all" in names else tuple(name for name in SUITES if name in names)


def _again(suite: str, device: str, sizes: dict[str, int]) -> list[str]:
    size = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    return ["-m", MODULE, "--suite", suite, "--device", device, *size]


def _require(device: str) -> None:
    from analysis import kernels
    from analysis.commands.device import usable

    if not usable(device).startswith("cuda"):
        raise ParameterError(
            f"--suite measures kernels, which need --device cuda, received {device!r}; leave --suite out."
        )
    import torch

    from analysis.kernels.cases import Case, draw
    from analysis.speed.suites import loop_of

    if ":" in device:
        torch.cuda.set_device(device)
    case = Case("v6", "parallel", tokens=64, chunk=32, width=16, heads=1)
    tensors = draw(loop_of(case), case, 0)
    reason = kernels.reason_against(loop_of(case), tensors.q, tensors.k, tensors.v)
    if reason is not None:
        raise ParameterError(
            f"expected a device on which the kernels run, received a reason against it: {reason}."
        )


def _measure(settings: Any, budget: float | None, folder: Path | None, jobs: int, again: list[str]) -> int:
    from analysis.paths import CACHE, require_writable
    from analysis.speed import jobs as work
    from analysis.speed.session import Session, open_store

    place = folder or CACHE / "records"
    require_writable(place)
    session = Session(open_store(place), budget, _show, _say)
    _introduce(work.device_ceilings())
    if jobs:
        done, seconds = work.compile_beforehand(again, jobs, 0.6 * min(session.left, 1000.0))
        _say(f"compiled beforehand in {seconds:.0f} s; {done} of {jobs} processes finished")
    outcome = session.run(work.jobs(settings, _say))
    _say(f"{len(outcome.measured)} measured, {len(outcome.kept)} kept from before; records in {place}")
    if outcome.left_out:
        _say(f"left out, since --budget {budget:g} would not hold them: {'; '.join(outcome.left_out)}")
    if outcome.failed:
        _say(f"without a time: {'; '.join(outcome.failed)}")
    return 1 if outcome.failed else 0


def _introduce(ceilings: Any) -> None:
    import torch

    _say(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}: ceilings measured now "
        f"{ceilings['operations_per_s'] / 1e12:.0f} TFLOP/s in bfloat16, {ceilings['bytes_per_s'] / 1e12:.2f} TB/s copied"
    )
    _say(
        "median [fastest..slowest] of warm calls in milliseconds; every shape is checked against float64 first"
    )


def _say(sentence: str) -> None:
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()


def _show(name: str, records: Sequence[Record]) -> None:
    _say(name)
    for record in records:
        _say("  " + line(record, records[0]))


def line(record: Record, ours: Record) -> str:
    """Return a record in one line; what the kernels are compared with also says how much longer it takes."""
    extra, where = record.extra, record.parameters
    if record.unit == "s":
        return f"{record.value:.2f} s with {where['cache']} cache, error {extra['error']:.1e}"
    slowest, fastest = max(extra["samples"]), min(extra["samples"])
    parts = [f"{where.get('implementation', 'step'):14} {record.value:9.3f} [{fastest:.3f}..{slowest:.3f}]"]
    if "tokens" in where:
        parts.append(f"{where['batch'] * where['tokens'] / record.value / 1e3:.2f} M tokens/s")
    if "floor_ms" in extra:
        parts.append(f"floor {extra['floor_ms']:.3f} ({extra['achieved']:.0%} achieved)")
    if "first_ms" in extra:
        parts.append(f"first call {extra['first_ms'] / 1e3:.2f} s, peak {extra['peak_gib']:.2f} GiB")
        parts.append(f"error {max(extra['errors'].values()):.1e}")
    if "errors_of_plain" in extra:
        parts.append(f"plain arithmetic {max(extra['errors_of_plain'].values()):.1e}")
    if "graph" in extra:
        parts.append(f"loss {extra['first_loss']:.3f} -> {extra['last_loss']:.3f}, {extra['graph']}")
    if record is not ours:
        parts.append(f"{record.value / ours.value:.2f} times as long as the kernels")
    return ", ".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 (a case failed), 2 (a mistake), 130 (interrupted)."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--suite", default="all", help="ladder, training, first, sweeps, steps (several with commas) or all"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--chunk", type=int)
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="start nothing that would not fit")
    parser.add_argument("--records", type=Path, metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=0, help="processes that compile everything beforehand")
    parser.add_argument("--corpus", type=Path, help="folder of the exported text, for steps")
    parser.add_argument("--share", default="", help=argparse.SUPPRESS)
    try:
        return bench_gpu(**vars(parser.parse_args(arguments)))
    except AnalysisError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: what was finished is kept, and no output is half written\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
