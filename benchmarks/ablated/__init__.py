"""What each part of a method brings: one setting changed at a time, on the product's own benchmarks."""
