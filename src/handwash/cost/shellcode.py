"""Shell code taken apart into simple commands, where it is no more than a list of them. Pure.

Whatever is more (loops, functions, substitutions of commands) is not guessed at: it raises `Compound`.
"""

from __future__ import annotations

# Stands in a word for what the shell would put there ($NAME): not known here. In no word that anybody can type.
DYNAMIC = "\0"
_RESERVED = frozenset("case coproc do done elif else esac fi for function if in select then until while { } [[".split())
_OPERATORS = (";;", "&&", "||", "|&", ";", "|", "&", "\n")
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class Compound(Exception):
    """More than a list of simple commands."""


def commands(code: str) -> list[list[str]]:
    """The simple commands of POSIX shell code, in order, without their redirections. Raises `Compound`.

    In each word `DYNAMIC` stands for what a variable would put there.
    """
    return _Reader(code).read()


class _Reader:
    def __init__(self, code: str) -> None:
        self.code = code
        self.place = 0

    def read(self) -> list[list[str]]:
        found: list[list[str]] = []
        words: list[str] = []
        while self.place < len(self.code):
            letter = self.code[self.place]
            if letter in " \t\r":
                self.place += 1
            elif self.code.startswith("\\\n", self.place):
                self.place += 2
            elif letter == "#":
                self._skip_line()
            elif self._redirection():
                pass
            elif operator := self._operator():
                if operator == ";;":
                    raise Compound
                found.append(words)
                words = []
            elif letter in "()":
                raise Compound
            else:
                word, quoted = self._word()
                if not words:
                    if not quoted and word in _RESERVED:
                        raise Compound
                    if not quoted and word == "!":
                        continue
                words.append(word)
        found.append(words)
        return [one for one in found if one]

    def _skip_line(self) -> None:
        end = self.code.find("\n", self.place)
        self.place = len(self.code) if end < 0 else end

    def _operator(self) -> str:
        for operator in _OPERATORS:
            if self.code.startswith(operator, self.place):
                self.place += len(operator)
                return operator
        return ""

    def _redirection(self) -> bool:
        """Passes over `>file`, `2>&1`, `&>file` and the like."""
        place = self.place
        while place < len(self.code) and self.code[place] in "0123456789":
            place += 1
        if self.code.startswith("&>", place) and place == self.place:
            place += 1
        elif not self.code.startswith((">", "<"), place):
            return False
        if self.code.startswith(("<<", "<(", ">("), place):
            if not self.code.startswith("<<<", place):
                raise Compound
            place += 2
        place += 1
        while place < len(self.code) and self.code[place] in ">&|":
            place += 1
        while self.code.startswith((" ", "\t", "\\\n"), place):
            place += 2 if self.code[place] == "\\" else 1
        if self.code.startswith(("<(", ">("), place):
            raise Compound
        self.place = place
        if place < len(self.code) and self.code[place] not in "\n;|&<>()":
            self._word()
        return True

    def _word(self) -> tuple[str, bool]:
        kept: list[str] = []
        quoted = False
        while self.place < len(self.code):
            letter = self.code[self.place]
            if letter in " \t\r\n;|&<>":
                break
            if letter in "()":
                raise Compound
            self.place += 1
            if letter == "\\" and self.code.startswith("\n", self.place):
                self.place += 1
            elif letter == "\\":
                quoted = True
                kept.append(self.code[self.place : self.place + 1])
                self.place += 1
            elif letter == "'":
                quoted = True
                end = self.code.find("'", self.place)
                if end < 0:
                    raise Compound
                kept.append(self.code[self.place : end])
                self.place = end + 1
            elif letter == '"':
                quoted = True
                self._double_quotes(kept)
            elif letter == "`":
                raise Compound
            elif letter == "$":
                self._variable(kept)
            else:
                kept.append(letter)
        return "".join(kept), quoted

    def _double_quotes(self, kept: list[str]) -> None:
        while self.place < len(self.code):
            letter = self.code[self.place]
            self.place += 1
            if letter == '"':
                return
            if letter == "\\" and self.code[self.place : self.place + 1] in ("$", "`", '"', "\\"):
                kept.append(self.code[self.place])
                self.place += 1
            elif letter == "\\" and self.code.startswith("\n", self.place):
                self.place += 1
            elif letter == "`":
                raise Compound
            elif letter == "$":
                self._variable(kept)
            else:
                kept.append(letter)
        raise Compound

    def _variable(self, kept: list[str]) -> None:
        """What follows a dollar sign."""
        following = self.code[self.place : self.place + 1]
        if following in ("(", "'", '"'):
            raise Compound
        if following == "{":
            end = self.code.find("}", self.place)
            inside = self.code[self.place : end]
            if end < 0 or any(letter in "`$(\"'" for letter in inside):
                raise Compound
            self.place = end + 1
            kept.append(DYNAMIC)
        elif following and (following in _NAME or following in "?#@*$!-"):
            self.place += 1
            while following in _NAME and self.code[self.place : self.place + 1] in _NAME - {""}:
                self.place += 1
            kept.append(DYNAMIC)
        else:
            kept.append("$")
