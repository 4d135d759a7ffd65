"""`twinbus pipeline pack`: twinbus in one file, for executors on machines where it is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinbus.cli.bars import Bar
from twinbus.cli.json_form import json_text
from twinbus.cli.say import say


def pack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write, as twinbus.tar.gz.")],
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Write twinbus and everything it needs into one file that Spark brings to its executors.

    It is made of what is installed here. So it fits executors with the same system and the same minor version of
    Python, whatever is installed there; PYSPARK_PYTHON says which Python they use.

    \b
    Examples:
      twinbus pipeline pack twinbus.tar.gz
      twinbus pipeline drain --master spark://host:7077 --archive twinbus.tar.gz
    """
    from twinbus.spark.archive import pack as pack_into
    from twinbus.spark.archive import python_of_this

    with Bar("packing"):
        packed = pack_into(file)
    if as_json:
        said = {"file": str(file), "bytes": packed.size, "python": python_of_this(), "packages": packed.packages}
        say(json_text(said))
    else:
        amount = f"{len(packed.packages)} packages, {packed.size / 1e6:,.0f} MB"
        say(f"{file}: {amount}, for Python {python_of_this()} on systems like this one")
