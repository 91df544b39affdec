"""Arrays that write down what NumPy does with them, and a NumPy that makes such arrays."""

import functools
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

_SORTS = {"sort"}
_SLOW = {
    "argpartition", "argsort", "digitize", "isin", "lexsort", "partition", "searchsorted",
    "setdiff1d", "tolist", "unique", "vectorize",
}  # fmt: skip
_SLOW_UFUNCS = {"divmod", "fmod", "power", "remainder", "true_divide"}
_DIVISIONS = {"floor_divide"}
_IN_PLACE = {"copyto", "fill", "put", "sort"}
_MAKERS = (
    "arange", "array", "asarray", "ascontiguousarray", "empty", "frombuffer", "fromiter", "full",
    "identity", "ones", "zeros",
)  # fmt: skip
_METHODS = (
    "argsort", "astype", "byteswap", "copy", "cumsum", "fill", "flatten", "nonzero", "ravel",
    "repeat", "reshape", "searchsorted", "sort", "take", "tobytes", "tolist",
)  # fmt: skip


@dataclass(slots=True)
class Tally:
    """What was done so far; :class:`tests.support.counting.Work` says what the numbers are."""

    moved: float = 0
    gathered: float = 0
    sorted: float = 0
    slow: float = 0
    fresh: float = 0
    encrypted: float = 0
    hashed: float = 0
    encryptions: float = 0
    calls: float = 0
    steps: float = 0

    def loop(self, ufunc: np.ufunc, operands: list[Any], outs: list[Any], given: Any) -> None:  # noqa: ANN401
        """Write down a loop over elements; operands of another type are converted on the way."""
        types = _loop_types(ufunc, operands, outs, given)
        self.calls += 1
        for each, dtype in zip([*operands, *outs], types, strict=True):
            if isinstance(each, np.ndarray):
                self.moved += each.nbytes
                if each.dtype != dtype:
                    self.moved += 2 * each.size * dtype.itemsize
        size = max(map(np.size, [*operands, *outs]))
        divided = ufunc.__name__ in _DIVISIONS and np.size(operands[1]) > 1
        floats = any(dtype.kind in "fcO" for dtype in types)
        if divided or floats or ufunc.__name__ in _SLOW_UFUNCS:
            self.slow += size

    def done(self, name: str, inputs: list[Any], results: list[Any]) -> None:
        """Write down any other operation; results that are only views cost nothing."""
        new = [each for each in results if not _is_view(each, inputs)]
        if results and not new and name not in _IN_PLACE:
            return
        self.calls += 1
        self.fresh += _bytes(new)
        self.moved += _bytes(results) + (0 if name.endswith("_like") else _bytes(inputs))
        elements = max(map(np.size, inputs), default=0)
        if name in _SORTS:
            self.sorted += elements
        elif name in _SLOW:
            self.slow += np.size(inputs[-1]) if name == "searchsorted" else elements
        elif name == "bincount":  # its input becomes places of 8 bytes first
            self.gathered += elements
            self.moved += 16 * elements
            self.fresh += 8 * elements

    def picked(self, places: list[Any], values: list[Any], *, new: bool) -> None:
        """Write down elements that were read or written by their places, or by a mask."""
        self.calls += 1
        self.gathered += sum(np.count_nonzero(p) if p.dtype == bool else p.size for p in places)
        self.moved += _bytes(places) + 2 * _bytes(values)
        self.fresh += _bytes(values) if new else 0


class Counted(np.ndarray):
    """An array whose operations are written down; so are those of everything made from it."""

    tally: Tally

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Run a loop, and write it down."""
        given = _plain(kwargs)
        result = getattr(ufunc, method)(*_plain(inputs), **given)
        made = _arrays(result)
        if method == "__call__":
            self.tally.loop(ufunc, list(_plain(inputs)), made or [result], given)
            self.tally.fresh += 0 if "out" in given else _bytes(made)
        else:
            self.tally.done(ufunc.__name__, _arrays(inputs), made)
        return _counted(type(self), result)

    def __array_function__(self, function: Any, _types: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Run any other function, and write it down."""
        result = function(*_plain(args), **_plain(kwargs))
        name = function.__name__
        if name in {"take", "put", "choose"}:
            picked = _arrays(result) or _arrays(args[2:])
            self.tally.picked(_arrays(args[1:2]), picked, new="out" not in kwargs)
        else:
            self.tally.done(name, _arrays([*args, *kwargs.values()]), _arrays(result))
        return _counted(type(self), result)

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401
        """Return a view, or what lies at some places."""
        result = _base(self)[_plain(key)]
        places = _places(key)
        if places:
            self.tally.picked(places, _arrays(result), new=True)
        return _counted(type(self), result)

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: ANN401
        """Write a part, or to some places."""
        target, places = _base(self), _places(key)
        target[_plain(key)] = _plain(value)
        if places:
            written = target[_plain(key)]
            self.tally.picked(places, [written, *_arrays(value)], new=False)
        else:
            self.tally.calls += 1
            self.tally.moved += target[_plain(key)].nbytes + _bytes(_arrays(value))


def counting_numpy(tally: Tally) -> tuple[ModuleType, ModuleType]:
    """Return NumPy, and one whose arrays write to the tally."""
    kind = type("CountedHere", (Counted,), {"tally": tally})
    proxy = _CountingNumpy(kind, tally)
    return np, proxy


class _CountingNumpy(ModuleType):
    def __init__(self, kind: type[Counted], tally: Tally) -> None:
        super().__init__("numpy")
        self.ndarray = kind
        for name in _MAKERS:
            setattr(self, name, functools.partial(_make, kind, tally, name))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(np, name)


def _make(kind: type[Counted], tally: Tally, name: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    result = getattr(np, name)(*_plain(args), **_plain(kwargs))
    if name == "empty":
        tally.fresh += result.nbytes
    elif name != "frombuffer":
        tally.done(name, _arrays(args), [result])
    return _counted(kind, result)


def _method(name: str) -> Any:  # noqa: ANN401
    def call(self: Counted, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = getattr(_base(self), name)(*_plain(args), **_plain(kwargs))
        if name == "take":
            self.tally.picked(_arrays(args[:1]), _arrays(result), new="out" not in kwargs)
        else:
            # Bytes are as much of a new array as any other copy.
            made = np.frombuffer(result, np.uint8) if isinstance(result, bytes) else result
            self.tally.done(name, _arrays([self, *args]), _arrays(made))
        return _counted(type(self), result)

    return call


for _name in _METHODS:
    setattr(Counted, _name, _method(_name))


def _loop_types(ufunc: np.ufunc, operands: list[Any], outs: list[Any], given: Any) -> Any:  # noqa: ANN401
    """Return the types in which a loop computes."""
    kinds = [each.dtype if hasattr(each, "dtype") else _weak(each) for each in operands]
    made = [each.dtype if given.get("out") else None for each in outs]
    options = {"casting": given.get("casting", "same_kind")}
    if given.get("dtype") is not None:
        options["signature"] = (*[None] * len(operands), *[np.dtype(given["dtype"])] * len(outs))
    return ufunc.resolve_dtypes((*kinds, *made), **options)


def _weak(value: Any) -> Any:  # noqa: ANN401
    kind = type(value)
    return kind if kind in {int, float, complex} else np.asarray(value).dtype


def _base(array: Any) -> Any:  # noqa: ANN401
    return array.view(np.ndarray) if isinstance(array, Counted) else array


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return the same with ordinary arrays."""
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return _base(value)


def _counted(kind: type[Counted], value: Any) -> Any:  # noqa: ANN401
    """Return the same with arrays that are counted."""
    if isinstance(value, tuple | list):
        return type(value)(_counted(kind, each) for each in value)
    return value.view(kind) if isinstance(value, np.ndarray) else value


def _arrays(value: Any) -> list[Any]:  # noqa: ANN401
    """Return all arrays in some arguments or results."""
    if isinstance(value, tuple | list):
        return [array for each in value for array in _arrays(each)]
    return [_base(value)] if isinstance(value, np.ndarray) else []


def _places(key: Any) -> list[Any]:  # noqa: ANN401
    """Return the arrays of places, or masks, in an index."""
    parts = key if isinstance(key, tuple) else (key,)
    return [_base(each) for each in parts if isinstance(each, np.ndarray)]


def _is_view(array: Any, inputs: list[Any]) -> bool:  # noqa: ANN401
    return any(np.may_share_memory(array, each) for each in inputs)


def _bytes(arrays: list[Any]) -> int:
    return sum(each.nbytes for each in arrays)
