"""What the papers report beside what mlcd gives: a script a paper, and the modules that compute its figures."""
