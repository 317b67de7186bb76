"""Eight instances at a time: arithmetic, products and Cholesky factors of compiled code."""
