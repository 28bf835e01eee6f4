"""`gpulab check-gpu`, installed as check_gpu.sh: compare bookings with what runs on the cards, mail who should know."""

from __future__ import annotations

import argparse
import json
import socket
import sys
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import settings
from ..adapters import mail
from ..adapters.accounts import group_members
from ..adapters.nvml import read_cards
from ..adapters.procfs import read_boot
from ..rules.display import printable
from ..services.booking import read_sheet
from ..services.check import Outcome, World, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..rules.checks import Event
    from ..rules.messages import Mail

_TOPIC = "check-gpu"
