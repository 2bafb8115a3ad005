"""`lithops/BACK_END`: real functions. Lithops invokes them and keeps their objects; docs/serverless.md has the scheme.

objects.py   the objects of a run, their names and their frame
object_store.py  object storage as the functions see it, every request counted
replica.py   what a function knows of the parameters: each shard's part once, whoever tells it
call.py      what a function is told, and what it reports
worker.py    the function
invoker.py   the only file that starts Lithops; own_folder.py keeps several processes out of each other's way
watch.py     an epoch's calls on their way: repeated where they fail or lag
cloud.py     the seam: one epoch to its barrier
"""
