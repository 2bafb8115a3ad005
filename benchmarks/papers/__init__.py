"""The papers' results compared with mlcd's: one script per paper, and the modules that compute its figures."""
