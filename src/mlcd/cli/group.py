"""A command with commands below it, whose help says what each does in a whole sentence."""

import click

MOST_CHARACTERS = 1000


class CommandGroup(click.Group):
    """Like click's group; its help wraps what a narrow terminal has no room for, where click cuts it off."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(MOST_CHARACTERS)) for name, command in found if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
