"""The server: joins, samples and perturbs ciphertext that it cannot read, once."""
