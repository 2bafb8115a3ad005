"""What each part of a method contributes: one setting changed at a time, on the product's own benchmarks."""
