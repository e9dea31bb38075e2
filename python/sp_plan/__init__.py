"""sp-plan from Python: what the program's commands answer, as the documents that they print.

    import sp_plan
    best = sp_plan.plan(model="llama-3.1-8b", seq="128K", topology="dgx-h100")["best"]

Keywords are the options of the command line with underscores: ``--kv-heads 8`` is ``kv_heads=8``.
Numbers, paths and sequences (``documents=[1024, 512]``) stand for their text, ``True`` is a switch
that is given; ``None`` and ``False`` are as if nothing had been said. ``plan``, ``topology`` and
``model`` take documents as well as names and files. ``help(sp_plan.plan)`` lists what a function takes.

A command that does not end with exit code 0 raises: InputError (2), NoPlanError (3), CheckError (4),
or Error itself (1). Its text is the line that the program prints; its ``document`` is what the
program would have printed nevertheless, or None.
"""

import inspect
import json
import numbers
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence

from . import _native

__all__ = [
    "CheckError", "Error", "InputError", "NoPlanError", "check_topology", "export", "import_machine", "import_model",
    "list_frameworks", "list_models", "list_stacks", "list_topologies", "plan", "report", "show_model", "show_stack",
    "show_topology", "simulate", "sweep", "verify", "version_text",
]
__version__ = _native.version


class Error(Exception):
    """A back end failed, or a bug; and the base of the others."""

    exit_code = 1

    def __init__(self, message="", document=None):
        super().__init__(message)
        self.document = document


class InputError(Error, ValueError):
    """Wrong usage or input."""

    exit_code = 2


class NoPlanError(Error):
    """No legal plan, or nothing fits, be it this machine's memory."""

    exit_code = 3


class CheckError(Error):
    """A check failed: a schedule was refuted."""

    exit_code = 4


_errors = {error.exit_code: error for error in (Error, InputError, NoPlanError, CheckError)}


def _option(name):
    return name.replace("_", "-")


def _text(value, option):
    """What would stand on the command line."""
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = int(value) if isinstance(value, numbers.Integral) else float(value)
        return str(int(number)) if number == number // 1 and abs(number) < 2**63 else repr(number)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return ",".join(_text(part, option) for part in value)
    raise InputError(f"--{option}: a value of type {type(value).__name__} cannot be given (str, int, float, path, or a sequence of them)")


def _answer(command, positionals=(), options=None):
    given = {}
    for name, value in (options or {}).items():
        option = _option(name)
        if value is None or value is False:
            continue
        given[option] = value if value is True or isinstance(value, Mapping) else _text(value, option)
    words = [_text(word, command) for word in positionals]
    code, message, document, warned = _native.answer(command, words, given)
    for warning in warned:
        warnings.warn(warning, stacklevel=3)
    if code:
        raise _errors[code](message, document)
    return document


def _file_of(document, path):
    """A file stands for itself, a document is written into one that goes away again."""
    if not isinstance(document, Mapping):
        return document
    with open(path, "w", encoding="utf-8") as file:
        json.dump(dict(document), file)
    return path


_tables = {name: (description, options) for name, description, options in _native.commands()}


def _documented(command, but=()):
    """Signature and help from the option table."""
    description, options = _tables[command]
    keywords = [(name.replace("-", "_"), value, text) for name, value, text, _ in options if name not in but]

    def decorate(function):
        own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        function.__signature__ = inspect.Signature(
            own + [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name, _, _ in keywords])
        lines = [f"    {name}: {text}{f' ({value})' if value else ''}" for name, value, text in keywords]
        function.command = command
        function.__doc__ = "\n".join([function.__doc__ or description, "", *lines])
        return function

    return decorate


@_documented("plan")
def plan(**options):
    return _answer("plan", options=options)


@_documented("sweep")
def sweep(**options):
    return _answer("sweep", options=options)


def report(*documents):
    """One page of HTML, as text, from any documents (dicts) and files of them, traces too."""
    with tempfile.TemporaryDirectory(prefix="sp-plan-") as folder:
        files = [_file_of(document, f"{folder}/{i + 1}.json") for i, document in enumerate(documents)]
        return _answer("report", files)


@_documented("simulate")
def simulate(**options):
    return _answer("simulate", options=options)


@_documented("verify")
def verify(**options):
    return _answer("verify", options=options)


@_documented("export", but=["list"])
def export(**options):
    return _answer("export", options=options)


@_documented("topology", but=["draw"])
def import_machine(*files, **options):
    """A machine from what other programs print (docs/machines.md), any number of files together; plan(topology=…)
    takes the document."""
    return _answer("topology", ["import", *files], options)


@_documented("topology", but=["name"])
def check_topology(topology, /, **options):
    """Explains a machine: a name, a document's file, or a file of another program."""
    return _answer("topology", ["check", topology], options)


def show_topology(name, /):
    """A machine or GPU of topologies/, or a file of that kind."""
    return _answer("topology", ["show", name])


def list_topologies():
    """The machines and GPUs of topologies/."""
    return _answer("topology", ["list"])


def list_models():
    """The models of models/."""
    return _answer("model", ["list"])


def show_model(name, /):
    """What sp-plan understands of a model of models/, or of a config.json."""
    return _answer("model", ["show", name])


def import_model(file, /):
    """A published config.json in the frame of models/."""
    return _answer("model", ["import", file])


def list_stacks():
    """The software that predictions can be made for."""
    return _answer("stack", ["list"])


def show_stack(name, /):
    """What is known of one of them."""
    return _answer("stack", ["show", name])


def list_frameworks():
    """The frameworks that plans can be exported to."""
    return _answer("export", options={"list": True})


def version_text():
    """What `sp-plan --version` prints: version, commit, back ends."""
    return _native.version_text()
