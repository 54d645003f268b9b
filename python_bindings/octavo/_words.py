"""Wrong calls of what is made in C++, told in words of Python: one sentence that names the function, the argument and what it takes."""

import ast
import copyreg
import functools
import inspect
import numbers
import os
import pathlib
import re
import sys

from . import _octavo

_ANY = inspect.Parameter.empty


def _parts(text):
    """What stands between the commas that no bracket or quote encloses."""
    parts, depth, quote, start = [], 0, "", 0
    for at, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()] if text.strip() else []


def _default(text):
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return ...


def _parameter(part, kind):
    name, _, rest = part.partition(":")
    type_text, equal, default = rest.partition(" = ")
    return inspect.Parameter(name.strip(), kind, default=_default(default) if equal else _ANY, annotation=type_text.strip())


def _signature(function):
    """Of the line that pybind11 writes as the first of a function's text; None where it writes none or several.

    pybind11 keeps names and types of arguments nowhere else that can be asked. Another form of the line does no harm: a function whose line is not
    understood keeps pybind11's own words, and a call that fits never comes here. tests/python/test_wrong_calls.py fails then, with each pybind11 that is built.
    """
    line = (function.__doc__ or "").split("\n", 1)[0]
    found = re.match(r"\w+\((.*)\)(?: -> .*)?$", line)
    if not found:
        return None
    kind, parameters = inspect.Parameter.POSITIONAL_OR_KEYWORD, []
    for part in _parts(found[1]):
        if part == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif part.startswith("**"):
            parameters.append(inspect.Parameter(part[2:].split(":")[0], inspect.Parameter.VAR_KEYWORD))
        elif part.startswith("*"):
            parameters.append(inspect.Parameter(part[1:].split(":")[0], inspect.Parameter.VAR_POSITIONAL))
        elif part != "/":
            parameters.append(_parameter(part, kind))
    try:
        return inspect.Signature(parameters)
    except ValueError:
        return None


def _wants(type_text, value):
    """(what the type is for people, whether the value is of it)."""
    optional = re.fullmatch(r"(?:typing\.)?Optional\[(.*)\]", type_text) or re.fullmatch(r"(.*) \| None", type_text)
    if optional:
        words, fits = _wants(optional[1], value)
        return f"{words} or None", fits or value is None
    if "Callable" in type_text:
        return "a function", callable(value)
    if re.search(r"SupportsInt|^int$", type_text):
        return "a whole number", not isinstance(value, float) and (hasattr(value, "__index__") or hasattr(value, "__int__"))
    if re.search(r"SupportsFloat|^float$", type_text):
        return "a number", hasattr(value, "__float__") or hasattr(value, "__index__")
    if type_text == "bool":
        return "True or False", value is None or hasattr(value, "__bool__")
    if type_text == "str":
        return "a str", isinstance(value, str)
    several = re.match(r"(?:typing\.|collections\.abc\.)?(?:list|List|Sequence)\[(.*)\]$", type_text)
    if several:
        words = _wants(several[1], None)[0].split(" ", 1)[-1]
        plain = not isinstance(value, (str, bytes, dict)) and hasattr(value, "__iter__") and hasattr(value, "__len__")
        return "a list" if words == "object" else f"a list of {words}", plain and all(_wants(several[1], one)[1] for one in value)
    if type_text.startswith(("tuple", "Tuple")):
        return f"a tuple of {len(_parts(type_text[6:-1]))}", isinstance(value, (tuple, list)) and len(value) == len(_parts(type_text[6:-1]))
    if type_text.startswith(("dict", "Dict")):
        return "a dict", isinstance(value, dict)
    if "ndarray" in type_text:
        return "an array", hasattr(value, "__array__")
    own = getattr(_octavo, type_text.rsplit(".", 1)[-1], None)
    if isinstance(own, type):
        return f"a {own.__name__}", isinstance(value, own)
    return type_text, True


def _of(value):
    return "None" if value is None else type(value).__name__


def _told(name, signature, args, kwargs):
    """The sentence, for a call that pybind11 refused."""
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        names = [p for p in signature.parameters if p != "self"]
        return f"{name}() {error}; it takes {', '.join(names) or 'no arguments'}"
    for key, value in given.items():
        parameter = signature.parameters[key]
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        words, fits = _wants(parameter.annotation, value)
        if not fits and not (value is None and parameter.default is None):
            inside = f" with {_of(value[0])}" if isinstance(value, (list, tuple)) and value and words.startswith("a list") else ""
            return f"{name}(): {key} takes {words}, not {_of(value)}{inside}"
        for number in value if isinstance(value, (list, tuple)) else [value]:
            if "int" in parameter.annotation.lower() and hasattr(number, "__index__") and not -(2**31) <= int(number) < 2**31:
                return f"{name}(): {key} is {number}, which is beyond what it can be"
    return f"{name}({', '.join(p for p in signature.parameters if p != 'self')}): the arguments do not fit"


def _bool_as_number(name, signature, numbers_in, args, kwargs):
    """The sentence, where True or False is given for a number, which pybind11 takes as 1 or 0."""
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    for key in numbers_in & set(given):
        value = given[key]
        if any(_bool(one) for one in (value if isinstance(value, (list, tuple)) else [value])):
            words = _wants(signature.parameters[key].annotation, value)[0]
            return f"{name}(): {key} takes {words}, not {'list with ' * isinstance(value, (list, tuple))}bool"
    return None


def _with_words(function, name):
    signature = _signature(function)
    if signature is None:
        return function
    numbers_in = {key for key, p in signature.parameters.items() if isinstance(p.annotation, str) and "number" in _wants(p.annotation, None)[0]}

    @functools.wraps(function)
    def call(*args, **kwargs):
        odd = _bool_as_number(name, signature, numbers_in, args, kwargs) if numbers_in else None
        if odd:
            raise TypeError(odd)
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if "incompatible " not in str(error)[:80]:
                raise
            said = _told(name, signature, args, kwargs)
        raise TypeError(said)

    bare = [p.replace(annotation=_ANY) for p in signature.parameters.values()]
    call.__signature__ = inspect.Signature(bare)
    call.__doc__ = function.__doc__.partition("\n")[2].strip() or None
    return call


def _bool(value):
    """Python's, or numpy's."""
    return isinstance(value, bool) or type(value).__module__ == "numpy" and type(value).__name__.rstrip("_") == "bool"


def _whole(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _path(value):
    return isinstance(value, (str, bytes, os.PathLike))


def _list(value, of=None):
    """What is gone through; where that can be done again, all of it is looked at."""
    if not hasattr(value, "__iter__") or isinstance(value, (str, bytes)):
        return False
    return of is None or not hasattr(value, "__len__") or all(of(one) for one in value)


def _word(value):
    return isinstance(value, str)


# Kinds of arguments of what is written in Python: what a sentence calls them, and what is one.
_KINDS = {
    "whole": ("a whole number", _whole),
    "number": ("a number", lambda v: isinstance(v, numbers.Real) and not _bool(v) and v == v),
    "flag": ("True or False", lambda v: isinstance(v, numbers.Integral) or type(v).__name__ == "bool"),
    "word": ("a str", _word),
    "path": ("a path", _path),
    "file": ("a path", lambda v: isinstance(v, (str, os.PathLike))),
    "mapping": ("a dict", lambda v: hasattr(v, "keys")),
    "list": ("a list", _list),
    "words": ("a list of str", lambda v: _list(v, _word)),
    "wholes": ("a list of whole numbers", lambda v: _list(v, _whole)),
    "paths": ("a list of paths", lambda v: _list(v, _path)),
    "function": ("a function", callable),
    "tokenizer": ("a path or what has encode(text)", lambda v: isinstance(v, (str, os.PathLike)) or hasattr(v, "encode") or hasattr(v, "backend_tokenizer")),
}


# What the items of a list have to be.
_PARTS = {"words": _word, "wholes": _whole, "paths": _path}


def check(place, name, value, kinds):
    """A TypeError unless the value is of one of the kinds, as "path|list"; "none" is one, too."""
    kinds = kinds.split("|")
    if value is None and "none" in kinds or any(_KINDS[kind][1](value) for kind in kinds if kind != "none"):
        return
    words = [_KINDS[kind][0] for kind in kinds if kind != "none"] + ["None"] * ("none" in kinds)
    what = "nan" if isinstance(value, float) and value != value else _of(value)
    if _list(value) and any(kind in _PARTS for kind in kinds):
        odd = next((one for one in value if not _PARTS[next(kind for kind in kinds if kind in _PARTS)](one)), None)
        what = f"{what} with {_of(odd)}"
    raise TypeError(f"{place}(): {name} takes {', '.join(words[:-1]) + ' or ' * (len(words) > 1) + words[-1]}, not {what}")


def takes(**kinds):
    """Decorates a function whose arguments are of these kinds; None fits where it is the default. A call that is wrong ends with one sentence."""

    def decorate(function):
        signature, place = inspect.signature(function), function.__qualname__.removesuffix(".__init__")
        kinds_of = {name: kind + "|none" * (signature.parameters[name].default is None) for name, kind in kinds.items()}

        @functools.wraps(function)
        def call(*args, **kwargs):
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                said = f"{place}() {error}"
            else:
                for name, kind in kinds_of.items():
                    if name in given:
                        check(place, name, given[name], kind)
                return function(*args, **kwargs)
            raise TypeError(said)

        return call

    return decorate


def put_texts(module):
    """Docstrings are those of the stub file, which editors show: one text for both."""
    stub = pathlib.Path(__file__).with_name("__init__.pyi")
    if sys.flags.optimize >= 2 or not stub.exists():
        return
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name not in module:
            continue
        members = [member for member in node.body if isinstance(member, ast.FunctionDef)] if isinstance(node, ast.ClassDef) else []
        for one, place in ((node, module), *((member, vars(module[node.name])) for member in members)):
            text, thing = ast.get_docstring(one), place.get(one.name)
            if text and thing is not None and type(thing).__name__ != "instancemethod":  # a special method keeps what C++ says
                getattr(thing, "__func__", thing).__doc__ = text


def _refuse_new(thing):
    """Of a class that has no constructor: an object that __new__ alone has made is none, and its methods would read memory that nobody has written."""
    name = thing.__name__
    if type(vars(thing).get("__init__")).__name__ == "instancemethod":
        return

    def __new__(cls, *args, **kwargs):
        raise TypeError(f"{name}() cannot be called; octavo itself makes what is of this class")

    thing.__new__ = staticmethod(__new__)


def _refuse_pickle(thing):
    """pybind11's classes cannot be pickled, and Python's way of protocols 0 and 1 ends the process. A class that is derived may say how it is."""

    def __reduce__(self):
        name = type(self).__name__
        raise TypeError(f"cannot pickle a {name}: it holds what is in this process alone; make it anew from its model")

    def __reduce_ex__(self, protocol):
        cls, plain = type(self), getattr(object, "__getstate__", None)
        if protocol >= 2 and cls.__reduce__ is __reduce__ and getattr(cls, "__getstate__", plain) is not plain:
            return copyreg.__newobj__, (cls,), self.__getstate__()
        return self.__reduce__()

    thing.__reduce__, thing.__reduce_ex__ = __reduce__, __reduce_ex__


def _put_words():
    for name, thing in list(vars(_octavo).items()):
        if isinstance(thing, type) and type(thing).__name__ == "pybind11_type":
            _refuse_new(thing)
            _refuse_pickle(thing)
            for member, function in list(vars(thing).items()):
                if type(function).__name__ == "instancemethod" and (member == "__init__" or not member.startswith("__")):
                    said = thing.__name__ if member == "__init__" else f"{thing.__name__}.{member}"
                    setattr(thing, member, _with_words(function, said))
        elif inspect.isbuiltin(thing):
            setattr(_octavo, name, _with_words(thing, name.lstrip("_")))


_put_words()
