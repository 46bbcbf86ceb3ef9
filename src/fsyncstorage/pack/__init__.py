"""A pack that survives a power cut at any moment.

- packing       copies what is needed, while others commit
- swap          replaces the old file by the new one
- packedblobs   removes blobs that are not needed any more
"""
