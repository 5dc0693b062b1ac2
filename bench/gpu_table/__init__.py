"""What bench/h200.py is made of: cases, runs of the programs, kept results, and the table."""
