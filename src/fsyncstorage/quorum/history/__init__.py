"""What the log says, and what follows from it.  No files, and no calls.

- record        what one record of the log says, and its bytes
- batch         how the bytes of commits become records
- staged        what the log has of a staged blob: its id, chunks and checksum
- fold          what a node makes of the next record: it applies it, skips it
                or refuses it
"""
