"""Tables as one page that needs nothing else: every number is computed here, and the page chooses among them."""
