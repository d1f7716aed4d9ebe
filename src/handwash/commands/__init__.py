"""One module for each command, or for each family of them: survey, judge, tell or act, exit code."""
