"""The numbers behind figures, and pictures of them. Only `draw` imports matplotlib."""
