"""The syphon: brings the messages of the backlog home.

async with Syphon(primary.dial(), secondary.dial(), "contoso", 10) as syphon:
    async for progress in syphon.progress(): ...
"""

from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.progress import Progress
from twinbus.syphon.pump.effects import Alert
from twinbus.syphon.syphon import Syphon, syphon

__all__ = ["Alert", "Progress", "Syphon", "SyphonOptions", "syphon"]
