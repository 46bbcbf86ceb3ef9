"""What a user of the driver may ask for.

- arguments     options that measuring commands have in common
- contestants   the storages that can take part without a server, by name
- custom        storages of the user, as contestants
"""
