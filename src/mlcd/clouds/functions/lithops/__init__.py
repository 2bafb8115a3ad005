"""`lithops/BACK_END`: real functions. Lithops invokes them and keeps their objects; docs/serverless.md has the scheme.

objects.py   the objects of a run: their names and their binary format
object_store.py  object storage as the functions see it; counts every request
replica.py   a function's copy of the parameters: applies each shard's part once, however often it is received
call.py      the order that a function gets, and its report
worker.py    the function
invoker.py   the only file that starts Lithops; own_folder.py isolates concurrent mlcd processes
watch.py     watches an epoch's calls: repeats those that fail or lag
cloud.py     the FunctionCloud: runs one epoch to its barrier
"""
