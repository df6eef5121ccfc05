"""Tables as the source has them, as they are captured, and as a target has them."""
