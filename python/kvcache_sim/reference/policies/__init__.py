"""The eviction policies block by block, and their replay."""
