"""The storage: opening, transactions, recovery, and the formats of others."""
