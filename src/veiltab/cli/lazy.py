"""Commands that are imported when somebody asks for them: every one starts as fast as it can."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module

import click


class LazyCommands(MutableMapping[str, click.Command]):
    """Names of commands, each with the ``module:attribute`` that it is imported from."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """Remember where the commands are; nothing is imported yet."""
        self._places = dict(places)
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        """Import a command, once."""
        if name not in self._loaded:
            module, _, attribute = self._places[name].partition(":")
            self._loaded[name] = getattr(import_module(module), attribute)
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        """Add a command that is imported already."""
        self._places[name] = ""
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        """Take a command away."""
        del self._places[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        """Go through the names, in their order."""
        return iter(self._places)

    def __len__(self) -> int:
        """Count the commands."""
        return len(self._places)


class OrderedGroup(click.Group):
    """A group whose help lists the commands in the order in which they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names as they were given, not by the alphabet."""
        del ctx
        return list(self.commands)


class DefaultGroup(OrderedGroup):
    """A group that does its first command when no other is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the first command's name before options that are not the group's own."""
        own = ctx.help_option_names
        if not args or (args[0].startswith("-") and args[0] not in own):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)
