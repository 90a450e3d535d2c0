"""What a proof reads of the code: what decides, which loops there are, and who comes to them."""
