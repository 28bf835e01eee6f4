"""What the lab does: rules applied to the outside world, which comes in as parameters."""
