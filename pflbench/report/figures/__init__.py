"""The numbers behind figures, and pictures of them. Only `pictures` imports matplotlib."""
