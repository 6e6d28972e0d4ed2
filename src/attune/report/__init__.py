"""What a person reads afterwards, and the prediction files it comes from."""
