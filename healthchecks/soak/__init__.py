"""What GPUs report of themselves while a check loads them: errors, heat, power, clocks and what holds these down."""
