#!/usr/bin/env python3
"""Validates documents of sp-plan by the schemas beside this file.

    docs/schema/validate.py FILE...

Prints what is wrong first with each, and then exits with 1. Needs jsonschema 4 (Debian and Ubuntu:
python3-jsonschema), which has no schemas of ours: those that refer to others are found here, none is fetched.
"""

import json
import pathlib
import sys
import warnings

import jsonschema

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of later versions; 4.10 has nothing else
    from jsonschema import RefResolver

SCHEMAS = {file.name.removesuffix(".schema.json"): json.loads(file.read_text(encoding="utf-8"))
           for file in sorted(pathlib.Path(__file__).parent.glob("*.schema.json"))}
STORE = {schema["$id"]: schema for schema in SCHEMAS.values()}


def first_error(document):
    """Where and what, as text; "" if the document holds. Its `format` says by which schema."""
    kind = str(document.get("format") if isinstance(document, dict) else None).removeprefix("sp-plan/")
    if kind not in SCHEMAS:
        return f"format: is none that has a schema ({', '.join(SCHEMAS)})"
    schema = SCHEMAS[kind]
    validator = jsonschema.Draft202012Validator(schema, resolver=RefResolver(schema["$id"], schema, store=STORE))
    error = jsonschema.exceptions.best_match(validator.iter_errors(document))
    return f"{'.'.join(map(str, error.absolute_path)) or kind}: {error.message[:300]}" if error else ""


def main(files):
    wrong = False
    for file in files:
        error = first_error(json.loads(pathlib.Path(file).read_text(encoding="utf-8")))
        if error:
            print(f"{file}: {error}")
        wrong |= bool(error)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if sys.argv[1:] else __doc__)
