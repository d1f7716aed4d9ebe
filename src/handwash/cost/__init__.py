"""What a command line costs, before it is run: words in, verdict out. Nothing here starts, submits or asks anything."""
