import re
from pathlib import Path

import click

from mlcd.cli.complete import complete_runs
from mlcd.cli.examples import examples
from mlcd.cli.output import FilePath, RunName, output_option, print_json, print_text
from mlcd.errors import BadInput

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?|\[?[0-9A-Fa-f:]+\]?")


@click.command(epilog=examples("mlcd ui", "mlcd ui RUN", "mlcd ui --port 8080 --no-open"))
@click.argument("run", type=RunName(), required=False, shell_complete=complete_runs)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on; by default any free port.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0: also from other machines."
)
@click.option("--allow-host", "names", multiple=True, metavar="NAME", help="Another host name that requests may use.")
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
@click.option("--allow-spend", is_flag=True, help="Let the page start runs on clouds that charge.")
@click.option(
    "--bench",
    "benches",
    multiple=True,
    metavar="FILE",
    type=FilePath(),
    help="Results of `mlcd bench train -o json` to show.",
)
@click.option("--embed", is_flag=True, help="Let pages of this machine, such as a notebook, show it in a frame.")
@output_option
def ui(
    *,
    run: str | None,
    port: int,
    host: str,
    names: tuple[str, ...],
    no_open: bool,
    allow_spend: bool,
    benches: tuple[Path, ...],
    embed: bool,
    output: str,
) -> None:
    """Watch runs, compare them and start new ones in the browser.

    Serves a page on this machine until Ctrl-C. Runs continue without it. The address that is printed holds a token:
    anyone who has it may start jobs in your name. RUN is the run to show first; by default the list of all runs.
    """
    if not host.strip():
        raise BadInput("--host: has no value; allowed: an address of this machine such as 127.0.0.1")
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise BadInput(f"--allow-host: is not a host name (got {name!r}); allowed: a name such as gpu1.example.org")
    from mlcd.extras import require

    require("ui", "mlcd ui")
    from mlcd.web.page_server import serve_page

    def ready(address: str) -> None:
        if output == "json":
            print_json({"address": address})
        else:
            print_text(f"mlcd ui: {address}", "Press Ctrl-C to stop the page; runs continue.")

    def open_browser(address: str) -> None:
        import webbrowser

        webbrowser.open(address)

    serve_page(
        run,
        host=host,
        port=port,
        names=names,
        allow_spend=allow_spend,
        benches=benches,
        embedded=embed,
        ready=ready,
        open_browser=None if no_open else open_browser,
    )
