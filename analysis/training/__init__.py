"""The outer loop: recipes as data, the trainer, data parallel runs, and a queue over several devices."""
