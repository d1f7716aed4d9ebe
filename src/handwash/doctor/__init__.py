"""`handwash doctor`: why is no GPU visible, what is set up wrong? Evidence is collected, judged, told."""
