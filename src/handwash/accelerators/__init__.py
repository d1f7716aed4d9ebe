"""The two independent looks at accelerators: the driver's library, and the device files that processes hold open."""
