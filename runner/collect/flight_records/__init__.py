"""Flight records: files of torch's flight recorder, pickles and JSON, become the places of ranks in their process groups.

Agents and `stoker diagnose` call it. A record is hostile: a child with little memory and time (`record_program`) reads it, and
hands out numbers and text only. Which rank is missing is for `runner.rootcause.flight.flight_analysis` to find.
"""
