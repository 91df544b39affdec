"""Times as people read them; everywhere else they are whole seconds since 1970."""

from datetime import UTC, datetime

SECONDS_A_DAY = 86_400


def moment(seconds: int) -> str:
    """Write a time in Unix seconds for people, wherever they are."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):  # a server may state any number
        return f"{seconds} s"


def in_days(seconds: int) -> str:
    """Write how long something lasts from now on: the days that have begun count."""
    days = -(-seconds // SECONDS_A_DAY)
    if seconds < SECONDS_A_DAY:
        return "in less than a day"
    return "in 1 day" if days == 1 else f"in {days:,} days"
