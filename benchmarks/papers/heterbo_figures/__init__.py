"""The results of HeterBO's paper compared with the simulator's; one file per group of figures."""
