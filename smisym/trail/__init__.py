"""The trail after ``compile``: from the channel to the last formula of the solvers, each step tried on the model."""
