"""What comes next in a run: pure functions of the run so far and its clock. Drivers carry out the decisions."""
