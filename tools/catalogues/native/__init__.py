"""What the makers of catalogues of C and C++ share: sources, calls with what surrounds them, texts, and classes by words."""
