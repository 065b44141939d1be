"""The hosts, their checkpoints and the named places inside them."""
