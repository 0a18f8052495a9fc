"""What the longer commands do; `cli.py` has their options."""
