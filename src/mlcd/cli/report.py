from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlcd.cli.examples import examples
from mlcd.cli.output import FilePath, html_name, output_option, place_in, print_json, print_text, writable, write_file
from mlcd.cli.run_argument import named_or_latest, run_argument
from mlcd.errors import BadInput

if TYPE_CHECKING:
    from mlcd.report.picture import Picture
    from mlcd.run.run import Run

FORMATS = ("html", "svg", "png", "json")


@click.command(
    epilog=examples(
        "mlcd report RUN",
        "mlcd report RUN --picture speed --out speed.svg",
        "mlcd report RUN --format png --out pictures",
    )
)
@run_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="html: one page (default). svg, png: every picture, in a folder. json: their tables and the decisions.",
)
@click.option(
    "--picture",
    metavar="NAME",
    help="One picture instead, as SVG or with --format png: speed, map, money, timeline, tradeoff, latency, ...",
)
@click.option(
    "--theme",
    type=click.Choice(["light", "dark"]),
    help="Colours of svg and png; by default an SVG follows its reader's setting, and a PNG is light.",
)
@click.option(
    "--out",
    metavar="PATH",
    type=FilePath(),
    help="Where to write; by default RUN.html, the folder RUN-pictures, or RUN-NAME.svg.",
)
@output_option
def report(
    run: str | None, *, form: str | None, picture: str | None, theme: str | None, out: Path | None, output: str
) -> None:
    """Write a run as one HTML file, with pictures; or its pictures as files.

    The page is self-contained and printable, and can be sent to anyone. RUN is a name from `mlcd runs`, a unique prefix
    of one, or a job's name for its newest run; by default the newest run.
    """
    from mlcd.kinds import kind_of
    from mlcd.report.pictures import picture_among
    from mlcd.store.store import Store, home

    form = form or ("html" if picture is None else "svg")
    _check(form, picture, theme, out)
    with Store(home(), reading=True) as store:
        found = store.load(named_or_latest(store, run))
    kind = kind_of(found.kind)
    files: dict[Path, str | bytes]
    if form == "html":
        files = {writable(out or Path(f"{found.run_id}.html")): kind.html(found)}
    elif form == "json":
        files = {writable(out or Path(f"{found.run_id}-pictures.json")): _json(found, kind.pictures(found))}
    elif picture is not None:
        chosen = picture_among(kind.pictures(found), picture, where=f"--picture: {found.run_id} has")
        files = {writable(out or Path(f"{found.run_id}-{picture}.{form}")): _drawn(chosen, form, theme)}
    else:
        folder = _folder(out or Path(f"{found.run_id}-pictures"))
        files = {place_in(folder, f"{each.name}.{form}"): _drawn(each, form, theme) for each in kind.pictures(found)}
    for file, content in files.items():
        write_file(file, content)
    if output == "json":
        fields = {"run_id": found.run_id, "kind": str(found.kind), "file": str(next(iter(files)))}
        print_json({**fields, "files": [str(file) for file in files]})
    else:
        print_text(*(f"Wrote {file}." for file in files))


def _check(form: str, picture: str | None, theme: str | None, out: Path | None) -> None:
    """Raises BadInput for options that do not go together."""
    if picture is not None and form in ("html", "json"):
        raise BadInput(f"--picture: --format {form} has all pictures; allowed with --picture: svg, png")
    if theme is not None and form in ("html", "json"):
        raise BadInput(f"--theme: --format {form} follows its reader's setting; allowed with --theme: svg, png")
    if form == "html" and out is not None and not out.is_dir():
        html_name(out)
    if picture is not None and out is not None and out.suffix.lower() != f".{form}":
        raise BadInput(
            f"--out: a picture of --format {form} (got {str(out)!r}); allowed: a name that ends in .{form}"
            + (", or --format png" if form == "svg" and out.suffix.lower() == ".png" else "")
        )


def _folder(path: Path) -> Path:
    """The folder, made if it is missing. Raises BadInput if that fails."""
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out: the folder {path} cannot be made: {error.strerror or error}") from error
    return path


def _drawn(picture: "Picture", form: str, theme: str | None) -> str | bytes:
    from mlcd.report.raster import png

    if form == "png":
        return png(picture, theme or "light")
    return picture.svg if theme is None else picture.in_theme(theme)


def _json(run: "Run[Any]", pictures: tuple["Picture", ...]) -> str:
    import json

    from mlcd.findings import shown
    from mlcd.report.pictures_json import pictures_json

    return json.dumps(pictures_json(shown(run), pictures), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
