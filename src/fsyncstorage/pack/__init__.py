"""A pack that survives a power cut at any moment.

- packing       copies what is needed, while others commit
- swap          the new file takes the place of the old one
- packedblobs   blobs that nothing needs any more
"""
