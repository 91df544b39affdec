"""Tables that the server keeps for years, and studies that are drawn from them."""
