"""What the verbs of the command line do; every heavy import happens inside the function that needs it."""
