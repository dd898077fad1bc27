"""What is averaged, given an output and a cavity: on the level set, on all fields, through sums, under noise."""
