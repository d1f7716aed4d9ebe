"""With HANDWASH_TESTS_ALLOW_NO_SKIP set, a skipped test fails the run: the machine was to have every part."""

from __future__ import annotations

import os

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _unwanted(terminalreporter):
        terminalreporter.section("skipped where nothing may be skipped")
        for name, reason in _unwanted(terminalreporter):
            terminalreporter.line(f"{name}: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and _unwanted(reporter) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _unwanted(reporter: pytest.TerminalReporter) -> list[tuple[str, str]]:
    if not os.environ.get("HANDWASH_TESTS_ALLOW_NO_SKIP"):
        return []
    return [(report.nodeid, str(report.longrepr)) for report in reporter.stats.get("skipped", [])]
