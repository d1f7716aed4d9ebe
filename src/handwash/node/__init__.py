"""What runs on a node, under every task of a session: `task` is started, all else is imported by it."""
