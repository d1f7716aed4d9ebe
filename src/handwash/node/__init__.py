"""What runs on a node, under every task of a session: `task` is started, all else is imported by it.

A job may have thousands of tasks, so what each of them loads is kept small. `posix` stands here in place of `os`, whose
import costs a fifth of a bare interpreter start (abstract base classes), and annotations are quoted, since the import of
`__future__` costs as much as one of ours. What only a task with something left to end needs is imported then.
"""
