"""What a training script calls: it runs on the nodes, so it uses the standard library only, and nothing else of mlcd.

Outside a job of mlcd none of it does anything but iterate: a script with these calls runs by hand as before.
"""
