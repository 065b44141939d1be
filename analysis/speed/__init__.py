"""How fast inner loops run here: the kernels on a CUDA device, the backends on a processor, a whole training step.

Every time is taken after the same shape has agreed with float64 in the same process, and becomes a record at once. Nothing
here is imported with the package; a figure reads the records alone.
"""
