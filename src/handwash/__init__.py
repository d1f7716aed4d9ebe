"""handwash: know where you are on a GPU cluster, and leave nothing behind when you go."""

__version__ = "0.1.0"
