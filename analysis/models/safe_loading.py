"""Reading tensors from files without running code that the files bring along.

`torch.load` is used with `weights_only=True` only. Training checkpoints that pickle a configuration object (yacs,
omegaconf, argparse) next to the weights are refused by it, so a second reader of our own walks the same pickle with a
closed list of globals: tensors are rebuilt, configuration objects become plain dictionaries of their content without
importing their class (the library need not be installed), and any other global stops the load by name.
"""

from __future__ import annotations

import collections
import io
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from analysis.errors import CheckpointError

_CONFIG_MODULES = (
    *("yacs", "omegaconf", "ml_collections", "easydict", "addict", "argparse"),
    *("typing", "enum", "pathlib"),
)
_BUILTINS = (
    *("dict", "list", "tuple", "set", "frozenset", "object"),
    *("int", "float", "bool", "str", "bytes", "complex"),
)
_CONFIG_GLOBALS = {
    "builtins": _BUILTINS,
    "types": ("SimpleNamespace",),
    "numpy": ("ndarray",),
    "numpy.core.multiarray": ("_reconstruct",),
    "numpy._core.multiarray": ("_reconstruct",),
}
_STORAGE_DTYPES = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_HEADER_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8},
    **{"BOOL": torch.bool, "C64": torch.complex64},
}


# What a pickle that was cut off or tampered with makes its readers raise.
_DAMAGE = (
    *(pickle.UnpicklingError, zipfile.BadZipFile, OSError, EOFError, MemoryError, RuntimeError),
    *(ValueError, TypeError, LookupError, ArithmeticError, AttributeError),
)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file; raises `CheckpointError` when it is missing or damaged."""
    _require_file(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"expected a complete safetensors file, received {path} ({path.stat().st_size} bytes) which cannot be read: "
            f"{error}; fetch the file again"
        ) from error


def load_shapes(path: Path) -> dict[str, Tensor]:
    """Read names, shapes and dtypes of a safetensors file as tensors on the meta device."""
    _require_file(path)
    try:
        with safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            dtypes = {
                name: _HEADER_DTYPES.get(part.get_dtype(), torch.float32) for name, part in slices.items()
            }
            return {
                n: torch.empty(part.get_shape(), dtype=dtypes[n], device="meta") for n, part in slices.items()
            }
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"expected a complete safetensors file, received {path}: {error}; fetch it again"
        ) from error


def load_pickled(path: Path) -> Any:
    """Read a `torch.save` file safely; configuration objects come back as plain dictionaries.

    Raises `CheckpointError` for a missing or damaged file and for a global outside the closed list, naming it.
    """
    _require_file(path)
    try:
        with warnings.catch_warnings():
            # they are about other pickle protocols; what matters is raised
            warnings.simplefilter("ignore", UserWarning)
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        return _read_closed(path)
    except _DAMAGE as error:
        raise _damaged(path, error) from error


def _read_closed(path: Path) -> Any:
    if not zipfile.is_zipfile(path):
        raise CheckpointError(
            f"expected a complete file written by torch.save, received {path} ({path.stat().st_size} bytes), which is no "
            "zip file of it and holds more than tensors; fetch it again, or save the state_dict alone with torch 1.6 or newer"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            pickled = next(
                name for name in archive.namelist() if name.endswith("/data.pkl") or name == "data.pkl"
            )
            return plain(_ClosedUnpickler(archive, pickled).load())
    except CheckpointError:
        raise
    except StopIteration:
        raise CheckpointError(
            f"expected a file written by torch.save, received {path} without data.pkl inside"
        ) from None
    except _DAMAGE as error:
        raise _damaged(path, error) from error


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise CheckpointError(f"expected a file at {path}, received nothing there; check the path")


def _damaged(path: Path, error: Exception) -> CheckpointError:
    said = str(error).splitlines()
    reason = said[0] if said and not isinstance(error, LookupError) else type(error).__name__
    return CheckpointError(
        f"expected a complete file written by torch.save, received {path} ({path.stat().st_size} bytes) which cannot be "
        f"read: {reason}; fetch the file again"
    )


class Inert(dict):  # type: ignore[type-arg]
    """What stands for an object of a configuration library: its items and attributes, nothing that runs."""

    origin = ""

    def __init__(self, *arguments: Any, **_: Any) -> None:
        super().__init__()
        self.arguments = arguments
        self.elements: list[Any] = []
        self.attributes: dict[str, Any] = {}

    def __new__(cls, *arguments: Any, **_: Any) -> Inert:
        """Accept whatever the pickle passes on."""
        instance = super().__new__(cls)
        instance.__init__(*arguments)  # type: ignore[misc]
        return instance

    def __setstate__(self, state: Any) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict):
                self.attributes.update(part)

    def append(self, value: Any) -> None:
        """Take a list element."""
        self.elements.append(value)

    def extend(self, values: Any) -> None:
        """Take list elements."""
        self.elements.extend(values)


def plain(value: Any) -> Any:
    """Turn inert objects into dictionaries, lists and scalars, all through a structure."""
    if isinstance(value, type) and issubclass(value, Inert):
        return value.origin
    if isinstance(value, Inert):
        attributes = {k: v for k, v in value.attributes.items() if not k.startswith("__")}
        if "_content" in attributes:
            return plain(attributes["_content"])
        if "_val" in attributes:
            return plain(attributes["_val"])
        if value.elements:
            return [plain(entry) for entry in value.elements]
        if value or attributes:
            return {plain(k): plain(v) for k, v in {**attributes, **value}.items() if k != "_parent"}
        return _of_arguments(value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(entry) for entry in value) if type(value) in (list, tuple) else value
    return value


def _of_arguments(value: Inert) -> Any:
    """What an object without content was made from: a path, a set, an enumeration's value; else its origin, unread."""
    module = value.origin.split(".")[0]
    if module == "pathlib":
        return "/".join(map(str, value.arguments))
    if module in ("builtins", "enum") and value.arguments:
        return plain(value.arguments[0])
    return {"unread": value.origin} if value.arguments else {}


class _ClosedUnpickler(pickle.Unpickler):
    def __init__(self, archive: zipfile.ZipFile, pickled: str) -> None:
        super().__init__(io.BytesIO(archive.read(pickled)))
        self._archive = archive
        self._root = pickled[: -len("data.pkl")]
        self._storages: dict[str, Tensor] = {}
        order = f"{self._root}byteorder"
        if order in archive.namelist() and archive.read(order).strip() != b"little":
            raise CheckpointError(
                "expected a checkpoint in little-endian byte order; save it again on a common machine"
            )

    def find_class(self, module: str, name: str) -> Any:
        """Return our own stand-in for a global; nothing is ever imported."""
        if module in ("torch", "torch.storage") and name in _STORAGE_DTYPES:
            return _STORAGE_DTYPES[name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if (module, name) in _REBUILDERS:
            return _REBUILDERS[module, name]
        if module == "__builtin__":  # the names of Python 2, which torch.save still writes
            module, name = "builtins", "int" if name == "long" else name
        harmless = module.split(".")[0] in _CONFIG_MODULES or name in _CONFIG_GLOBALS.get(module, ())
        if harmless and "." not in name:
            return type("Inert", (Inert,), {"origin": f"{module}.{name}"})
        raise CheckpointError(
            f"expected a checkpoint with tensors and plain configuration, received one that asks for {module}.{name}; "
            "it was not run: save the state_dict alone, and load files from people you trust only"
        )

    def persistent_load(self, pid: Any) -> Tensor:
        """Return the raw storage a tensor refers to, as a flat tensor."""
        _, dtype, key, _, _ = pid
        if key not in self._storages:
            data = bytearray(self._archive.read(f"{self._root}data/{key}"))
            self._storages[key] = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        return self._storages[key]


def _tensor(storage: Tensor, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Tensor:
    return torch.as_strided(storage, size, stride, offset)


def _parameter(data: Tensor, *_: Any) -> Tensor:
    return data


class _NumpyDtype:
    def __init__(self, code: str, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment of a plain scalar type do not matter."""


def _numpy_scalar(dtype: _NumpyDtype, data: bytes | str) -> Any:
    raw = data.encode("latin1") if isinstance(data, str) else data
    kinds = {"f8": torch.float64, "f4": torch.float32, "i8": torch.int64, "i4": torch.int32, "b1": torch.bool}
    if dtype.code not in kinds:
        raise CheckpointError(
            f"expected numbers or booleans beside the weights, received a numpy scalar of type {dtype.code!r}"
        )
    return torch.frombuffer(bytearray(raw), dtype=kinds[dtype.code]).item()


def _latin1(text: str, *_: Any) -> bytes:
    return text.encode("latin1")


_REBUILDERS: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch", "Size"): tuple,
    ("torch", "device"): lambda *arguments: ":".join(map(str, arguments)),
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): lambda *_: {},
    ("numpy", "dtype"): _NumpyDtype,
    ("numpy.core.multiarray", "scalar"): _numpy_scalar,
    ("numpy._core.multiarray", "scalar"): _numpy_scalar,
    ("_codecs", "encode"): _latin1,
}
