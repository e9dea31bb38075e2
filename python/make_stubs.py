"""Writes __init__.pyi of the package that was built, from the option table.  make_stubs.py PACKAGE OUTPUT"""

import importlib
import inspect
import pathlib
import re
import sys

package = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(package.parent))
sp_plan = importlib.import_module(package.name)

HEAD = '''# Made from the option table (python/make_stubs.py).
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

_Text = str | os.PathLike[str]
_Number = int | float | str
_List = _Text | int | Sequence[_Text | int]
_Document = dict[str, Any]

__version__: str

class Error(Exception):
    exit_code: int
    document: _Document | None
    def __init__(self, message: str = "", document: _Document | None = None) -> None: ...

class InputError(Error, ValueError): ...
class NoPlanError(Error): ...
class CheckError(Error): ...

'''
DOCUMENTS = {"plan", "topology", "model"}


def type_of(name, value, choices):
    if not value:
        return "bool"
    if all(re.fullmatch("[0-9]+", choice) for choice in choices) and (choices or value in ("N", "SECONDS") or len(value) == 1):
        return "_Number"
    if choices and len(choices) == len(value.split("|")):
        return f"Literal[{', '.join(repr(choice) for choice in choices)}]"
    kind = "_List" if "," in value or name == "topology" else "_Text"
    return f"{kind} | Mapping[str, Any]" if name in DOCUMENTS else kind


kinds = {(command, name.replace("-", "_")): type_of(name, value, choices)
         for command, _, options in sp_plan._native.commands() for name, value, _, choices in options}


def parameter(p, command):
    if p.kind is p.VAR_POSITIONAL:
        return f"*{p.name}: _Text | Mapping[str, Any]" if p.name == "documents" else f"*{p.name}: _Text"
    if p.kind is p.KEYWORD_ONLY:
        return f"{p.name}: {kinds[command, p.name]} | None = None"
    return f"{p.name}: _Text"


def stub(name):
    function = getattr(sp_plan, name)
    parts, named, starred = [], False, False
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.POSITIONAL_ONLY:
            named = True
        elif named:
            parts.append("/")
            named = False
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        parts.append(parameter(p, getattr(function, "command", None)))
    if named:
        parts.append("/")
    result = "str" if name in ("version_text", "report") else "_Document"
    return f"def {name}({', '.join(parts)}) -> {result}: ...\n"


functions = [name for name in sp_plan.__all__ if inspect.isfunction(getattr(sp_plan, name))]
pathlib.Path(sys.argv[2]).write_text(HEAD + "".join(stub(name) for name in functions), encoding="utf-8")
