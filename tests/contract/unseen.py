"""handwash, with a second look at the processes that fails."""

from __future__ import annotations

from tests.contract.test_front_door import MAIN


def without_a_second_look(why: str) -> str:
    """Code for the interpreter that runs handwash's words so."""
    return (
        f"import sys; sys.path.insert(0, {str(MAIN.parents[1])!r})\n"
        "from handwash import cli, survey\n"
        "from handwash.frozen import replace\n"
        "from handwash.model import Unknown\n"
        "take = survey.take\n"
        "def later(deadline, only=()):\n"
        "    again = only == ('processes',)\n"
        "    seen = take(deadline, only) if only else take(deadline)\n"
        f"    return replace(seen, processes=Unknown({why!r})) if again else seen\n"
        "survey.take = later\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
