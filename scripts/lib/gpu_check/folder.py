"""The folder of a report: everything is on disk as soon as it is known.

    README.md          made from the documents below, after every step
    visit.json         which parts were asked for, of what program, on which GPU
    steps/NN-name.json one document a step, written when it begins, after every run, when it ends
    logs/NN-name/      what its commands said, each file cut to 256 KiB; traces, gzipped
    profile-*.json     calibrations

Beside it FOLDER.tar.gz holds the same, also after every step.
"""

import json
import os
import pathlib
import shutil
import tarfile

MOST_IN_ARCHIVE = 1 << 20  # bytes of one file; larger ones stay behind, and are named


class BadDocument(Exception):
    """A file of the folder that is not what this script writes."""


def write_atomically(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.new")
    new.write_text(text)
    os.replace(new, file)


def write_json(file, document):
    """A line a key, and one an element of a list: for people who look for something, and for diffs."""
    lines = []
    for key, value in document.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(json.dumps(element, ensure_ascii=False) for element in value) + "]"
        lines.append(f' {json.dumps(key)}: {text}')
    write_atomically(file, "{\n" + ",\n".join(lines) + "\n}\n")


def read_json(file):
    try:
        document = json.loads(file.read_text())
    except (OSError, ValueError) as e:
        raise BadDocument(f"{file}: {e}") from e
    if not isinstance(document, dict):
        raise BadDocument(f"{file}: not an object")
    return document


class Folder:
    def __init__(self, path, archive=None):
        self.path = pathlib.Path(path)
        self.archive_file = archive or self.path.with_name(self.path.name + ".tar.gz")

    @property
    def visit_file(self):
        return self.path / "visit.json"

    def step_file(self, number, name):
        return self.path / "steps" / f"{number:02}-{name}.json"

    def logs(self, number, name):
        return self.path / "logs" / f"{number:02}-{name}"

    def records(self):
        """Of all steps that were ever begun, in their order. A file that is broken (a machine that
        went away in the middle) is passed over: its step then counts as never begun."""
        found = []
        for file in sorted((self.path / "steps").glob("*.json")):
            try:
                found.append(read_json(file))
            except BadDocument:
                continue
        return found

    def forget(self, steps):
        """What an earlier visit left of these (number, name)."""
        for number, name in steps:
            self.step_file(number, name).unlink(missing_ok=True)
            shutil.rmtree(self.logs(number, name), ignore_errors=True)

    def pack(self):
        """The archive: of all files but the few that are too large for it."""
        self.archive_file.parent.mkdir(parents=True, exist_ok=True)
        new = self.archive_file.with_name(f".{self.archive_file.name}.new")
        with tarfile.open(new, "w:gz", format=tarfile.GNU_FORMAT) as archive:
            for file in sorted(self.path.rglob("*")):
                if file.is_file() and not file.name.startswith(".") and file.stat().st_size <= MOST_IN_ARCHIVE:
                    archive.add(file, f"{self.path.name}/{file.relative_to(self.path)}", filter=_nobodys)
        os.replace(new, self.archive_file)


def _nobodys(member):
    """Who made a file is nobody's business."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
