"""Flight analysis: which ranks a gang waits for, by the places of its ranks in their process groups. Pure.

Hang analysis and `stoker diagnose --flight` call it. It reads no record: `runner.collect.flight_records` does.
"""
