"""The page's server: binds, makes the token, and serves until Ctrl-C."""

import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from urllib.parse import quote

from mlcd.errors import BadInput
from mlcd.home import home, private_folder, write_private
from mlcd.run.kind import Kind
from mlcd.server.limits import Limits
from mlcd.server.memory import Memory
from mlcd.server.running import address_of, allow_descriptors, listen, run_app
from mlcd.store.store import Store
from mlcd.untrusted import Malformed, read_bytes
from mlcd.web.api import Api
from mlcd.web.app import make_app
from mlcd.web.bench_results import read_benches
from mlcd.web.feed import Feed
from mlcd.web.guard import TICKET, TOKEN, Guard
from mlcd.web.pages import Pages
from mlcd.web.processes import Processes
from mlcd.web.records import Records

TOKEN_FILE = "ui-token"  # noqa: S105 - its name
LATER = ("mlcd.findings.now", "mlcd.findings.what_if", *(f"mlcd.kinds.{kind}" for kind in Kind))
"""What is imported once the page answers: models, and what draws runs of each kind."""
LIMITS = Limits(connections=512, body_seconds=30.0)


def serve_page(
    run: str | None,
    *,
    host: str,
    port: int,
    names: tuple[str, ...] = (),
    allow_spend: bool = False,
    benches: Sequence[Path] = (),
    embedded: bool = False,
    ready: Callable[[str], None],
    open_browser: Callable[[str], object] | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; `ready` is told the address, with the token, once requests are answered.

    run      the run to show first
    embedded whether pages of this machine may show it in a frame
    benches  files with results of `mlcd bench train -o json`
    open_browser  is then given an address that may be seen: it is good once (see ticket.py)

    Raises BadInput for an address that cannot be used, and for an unknown run.
    """
    folder = home()
    results = read_benches(benches)
    place = "/"
    if run is not None:
        with Store(folder, reading=True) as store:
            place = f"/runs/{quote(store.load(run).run_id, safe='')}"
    allow_descriptors(LIMITS)
    with listen(host, port) as listener:
        address = address_of(listener)
        guard = Guard(
            host=host,
            port=listener.getsockname()[1],
            token=kept_token(folder),
            names=tuple(name.lower() for name in names),
            embedded=embedded,
        )
        records = Records(folder)
        processes = Processes(home=folder, folder=Path.cwd(), allow_spend=allow_spend)
        feed = Feed(records)
        app = make_app(
            Api(records, processes, results), feed, Pages(records, allow_spend=allow_spend, benches=results), guard
        )
        shown = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
        run_app(
            app,
            listener,
            LIMITS,
            memory=Memory(LIMITS.in_flight_bytes),
            ready=lambda: _ready(ready, open_browser, f"{shown}{place}", guard),
            graceful_seconds=1,
        )


def _ready(
    tell: Callable[[str], None], open_browser: Callable[[str], object] | None, address: str, guard: Guard
) -> None:
    """Tell the address; then import what the first page of a run needs."""
    tell(f"{address}?{TOKEN}={guard.token}")
    if open_browser is not None:
        open_browser(f"{address}?{TICKET}={guard.tickets.issue()}")
    threading.Thread(target=lambda: [import_module(name) for name in LATER], name="mlcd-imports", daemon=True).start()


def kept_token(folder: Path) -> str:
    """The token of this home, made once: a page that is open finds its server again after a restart.

    Raises BadInput where it can neither be read nor written.
    """
    file = folder / TOKEN_FILE
    try:
        found = read_bytes(file, most_bytes=256).decode("ascii", "replace").strip()
        if len(found) >= 32 and found.isalnum():
            return found
    except FileNotFoundError:
        pass
    except (Malformed, OSError) as error:
        raise BadInput(f"{file} cannot be read ({error}): remove it") from error
    made = secrets.token_hex(24)
    try:
        private_folder(folder)
        write_private(file, made)
    except OSError as error:
        print(f"mlcd: the token is not kept: {error}", file=sys.stderr)  # noqa: T201
    return made
