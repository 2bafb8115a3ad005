"""What HeterBO's paper reports beside what the simulator gives; one file a group of figures."""
