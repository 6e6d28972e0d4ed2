"""What is made of results: alignments, combinations, comparisons, leaderboards, live views."""
