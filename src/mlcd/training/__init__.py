"""What a training script calls. It runs on the nodes, so it uses the standard library only, and of mlcd its errors.

Outside a job of mlcd none of it does anything but iterate: a script with these calls runs by hand as before.
"""
