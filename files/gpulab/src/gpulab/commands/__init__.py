"""The commands people and cron type: argument parsing and printing."""
