"""Log calls in C, C++ and Go sources: which function is called with which format. It reads text and compiles nothing."""
