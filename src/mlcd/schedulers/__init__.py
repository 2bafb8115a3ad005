"""Who decides before each epoch how many functions train, and with how much memory; one file a scheduler."""
