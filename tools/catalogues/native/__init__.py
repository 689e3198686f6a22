"""Catalogues of accelerators and collectives: drivers, their libraries, NCCL and the like, and the libraries beneath them."""
