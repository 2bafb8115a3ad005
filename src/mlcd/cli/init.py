import re
from pathlib import Path

import click

from mlcd.cli.examples import examples
from mlcd.cli.output import FilePath, output_option, print_json, print_text, writable, write_file
from mlcd.errors import BadInput


@click.command(epilog=examples("mlcd init", "mlcd init my-training.yaml"))
@click.argument("file", type=FilePath(), default=Path("job.yaml"))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@output_option
def init(file: Path, force: bool, output: str) -> None:
    """Write a commented job file to start from.

    FILE is job.yaml by default. The job runs unchanged on a simulated cloud.
    """
    from mlcd.spec import template

    if writable(file).exists() and not force:
        raise BadInput(f"{file} already exists: give --force to overwrite it, or another name")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("-._")
    write_file(file, template() if name in ("", "job") else template(name[:80]))
    if output == "json":
        print_json({"file": str(file)})
    else:
        print_text(f"Wrote {file}. Change it to your job, then run: mlcd train {file}")
