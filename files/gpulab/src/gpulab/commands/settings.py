"""`gpulab settings`: print the settings in force, or check a file before it replaces the one in use."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..settings import load, load_file, to_document

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Print the settings as JSON, or say what is wrong with a file.

    Raises:
        InputError: a settings file cannot be understood.
    """
    parser = argparse.ArgumentParser(prog="gpulab settings", description=__doc__)
    parser.add_argument("--check", metavar="FILE", type=Path, help="only check this file; silent when it is good")
    arguments = parser.parse_args(argv)
    if arguments.check:
        load_file(arguments.check)
    else:
        print(json.dumps(to_document(load()), indent=2, ensure_ascii=False))
    return 0
