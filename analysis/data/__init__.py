"""Data for the three hosts: text, scenes and images, each with an embedded default and real formats beside it."""
