import re

import click

from mlcd.cli.examples import examples
from mlcd.cli.output import output_option, print_json

INSTALL = {
    "bash": ("~/.bashrc", 'eval "$(mlcd completion bash)"'),
    "zsh": ("~/.zshrc", 'eval "$(mlcd completion zsh)"'),
    "fish": ("~/.config/fish/completions/mlcd.fish", "mlcd completion fish | source"),
}
"""Shell -> (the file that it reads, the line to add there)."""


@click.command(epilog=examples("mlcd completion bash"))
@click.argument("shell", type=click.Choice(list(INSTALL)))
@output_option
def completion(shell: str, output: str) -> None:
    """Print the completion script for your shell.

    It completes commands, runs, strategies, clouds and instance types.

    \b
    Add this line to ~/.bashrc:
      eval "$(mlcd completion bash)"
    to ~/.zshrc:
      eval "$(mlcd completion zsh)"
    to ~/.config/fish/completions/mlcd.fish:
      mlcd completion fish | source
    """  # noqa: D301 - click's mark of lines that are not wrapped
    from click.shell_completion import get_completion_class

    from mlcd.cli.main import cli

    made = get_completion_class(shell)
    if made is None:  # no version of click that mlcd allows lacks one of the three
        raise click.ClickException(f"this version of click cannot complete in {shell}")
    script = _quiet(made.source_template % made(cli, {}, "mlcd", "_MLCD_COMPLETE").source_vars())
    if output == "json":
        file, line = INSTALL[shell]
        print_json({"shell": shell, "file": file, "line": line, "script": script})
    else:
        click.echo(script)


def _quiet(script: str) -> str:
    """The script, whose calls of mlcd print no error between the user's keys."""
    return re.sub(r"(_complete (?:\$1|mlcd)|\(commandline -t\) mlcd)\)", r"\1 2>/dev/null)", script)
