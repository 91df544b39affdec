"""Pure mathematics: no input or output, no clock, no cryptography, no hidden randomness."""
