"""Catalogues of collectives: NCCL and its relatives, the libraries that carry them, and torch's side of them."""
