"""Schedulers, one file each: they choose the number of functions and their memory before each epoch."""
