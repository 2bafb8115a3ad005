"""One-line faults that tests must notice: the list (mutants/list), and what applies and judges them."""
