"""Log search: a child process of low priority reads rank output and the kernel log, and reports matches."""
