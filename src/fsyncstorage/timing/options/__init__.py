"""What a user of the driver can choose.

- arguments     options that measuring commands have in common
- contestants   the storages that can be measured without a server, by name
- custom        storages of the user, as contestants
"""
