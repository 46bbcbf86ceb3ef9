"""A pack that survives a power cut at any moment.

- packing       what the storage does: files, the rest, the append lock
- swap          replaces the old file by the new one
- packedblobs   removes blobs that are not needed any more
- process       the process that packs, as its parent sees it
- child         the same, as it sees itself
- work          check, mark, copy: there, or here
- packs         how far it is, its cancel, and forecasts: what is asked for
- forecast      what a pack would free, and need
- plan          what is kept, for a pack and for a forecast
- counting      how long the new file would be, and what is freed by class
- goneblobs     lists the blobs that are not kept
- survey        what one read of the file tells
- marking       which records are kept
- copying       copies them, and seals what it copies
- output        appends to a file
- places        where old records are in the new file
- restorable    what may be undone while a pack is under way
- chains        where the data are that a record points back to
- progress      how far it is, and how it is cancelled
- pacing        syncs that are short, and at most so many bytes a second
- foreign       the storage, for a packer of the user's own
"""
