"""gpusim: the control command of the simulated NVIDIA driver."""
