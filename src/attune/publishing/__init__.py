"""Models for others: exported, converted and compared, pushed with their cards, pulled back."""
