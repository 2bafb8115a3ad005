"""How a job runs on its nodes. These files run there, so they import the standard library and each other only."""
