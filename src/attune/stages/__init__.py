"""What a user asks for, start to finish: stages read files, write files, and continue when run again."""
