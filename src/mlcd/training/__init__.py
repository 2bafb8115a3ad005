"""The functions that a training script calls. They run on the nodes: standard library and mlcd's errors only.

Outside a job of mlcd they only iterate: a script with these calls runs by hand as before.
"""
