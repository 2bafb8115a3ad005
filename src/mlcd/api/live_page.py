"""`mlcd.ui`: the live page of `mlcd ui` inside a notebook."""

import atexit
import html
import json
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from mlcd.api.results import Result, ServeResult, ServerlessResult
from mlcd.errors import BadInput, MlcdError
from mlcd.extras import require
from mlcd.jobs.arguments import check_folder, check_text
from mlcd.store.store import home as default_home

_servers: dict[Path, tuple["subprocess.Popen[str]", str]] = {}
"""The page's server of each home, which ends with this process, and its address with the token."""


_SAME_SITE = """(() => {
  const frame = document.getElementById("%s");
  if (frame && location.hostname === "127.0.0.1") frame.src = frame.src.replace("//localhost:", "//127.0.0.1:");
})()"""
"""A frame gets the cookie only where its host is the notebook's: localhost by default, 127.0.0.1 in some addresses."""


@dataclass(frozen=True, slots=True)
class LivePage:
    """The page in a frame; notebooks display it. `address` opens it in a browser on this machine."""

    address: str
    height: int

    def _repr_html_(self) -> str:
        address = html.escape(self.address, quote=True)
        name = f"mlcd-{secrets.token_hex(4)}"
        return (
            f'<iframe id="{name}" src="{address}" width="100%" height="{self.height}" style="border:0" title="mlcd">'
            f'</iframe><p><a href="{address}" target="_blank" rel="noreferrer">Open the page</a></p>'
            f"<script>{_SAME_SITE % name}</script>"
        )


def ui(
    run: Result | ServeResult | ServerlessResult | str | None = None,
    *,
    height: int = 900,
    home: str | os.PathLike[str] | None = None,
) -> LivePage:
    """The live page of a run, or of all runs, to be shown in a notebook. It follows a run that goes on elsewhere.

    run     a result, or a run's name; None: the list of all runs
    height  of the frame, in pixels

    Its server is a process of its own, which ends with this one. Raises BadInput, MissingExtra, MlcdError.
    """
    require("ui", "mlcd.ui()")
    name = run.run_id if isinstance(run, Result | ServeResult | ServerlessResult) else run
    if name is not None:
        check_text("run", name, allowed="a result, or a run's name")
    if isinstance(height, bool) or not isinstance(height, int) or not 100 <= height <= 10_000:
        raise BadInput(f"height: must be a whole number of pixels from 100 to 10000 (got {height!r})")
    folder = Path(default_home() if home is None else check_folder("home", home)).absolute()
    known = _servers.get(folder)
    if known is None or known[0].poll() is not None:
        known = _servers[folder] = _started(folder)
    start, _, token = known[1].partition("/?token=")
    place = f"runs/{quote(name, safe='')}" if name else ""
    return LivePage(f"{start}/{place}?token={token}", height)


def _started(folder: Path) -> tuple["subprocess.Popen[str]", str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "mlcd", "ui", "--no-open", "--embed", "-o", "json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "MLCD_HOME": str(folder), "NO_COLOR": "1"},
        start_new_session=True,  # interrupting the kernel does not end it
    )
    atexit.register(process.terminate)
    text = ""
    while not text.rstrip().endswith("}"):
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            said = process.stderr.read() if process.stderr is not None else ""
            raise MlcdError(said.strip().removeprefix("mlcd: ") or "mlcd ui ended before it was ready")
        text += line
    # Under this name a notebook on localhost is the same site, so that its frame gets the cookie; see _SAME_SITE.
    return process, str(json.loads(text)["address"]).replace("//127.0.0.1:", "//localhost:", 1)
