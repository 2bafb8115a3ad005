"""`mlcd ui`: a live web page over the store of runs, and the JSON API that it uses.

It shows what the engine stored and decides nothing. New runs are `mlcd` processes of their own.

page_server.py  binds, and serves until Ctrl-C
guard.py      who may talk to it: Host, Origin, token, same-origin requests, content security policy
app.py        the routes
api.py        JSON; openapi.py describes it
pages.py      HTML, from the templates here and the pictures of mlcd.report
records.py    reads the store, and remembers what has not changed
feed.py       one watcher of the store for all clients; server-sent events
processes.py  starts, stops and resumes runs
"""
