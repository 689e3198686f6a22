"""Ready callbacks, one module for each library: `huggingface`, `lightning`, `pytorch`. Each needs its library alone."""
