"""How a job runs on its nodes; these files run there, so they use the standard library and, of mlcd, each other."""
