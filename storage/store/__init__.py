"""A store as a whole: its files at one moment, the facade over them, and how both stay true while a broker writes."""
